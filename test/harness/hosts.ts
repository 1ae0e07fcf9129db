// Hosts on this machine that can be cut off from all others or from some: Linux network namespaces, joined by a bridge, which needs root
// and iproute2. Processes outside reach each host by its address. A test that makes hosts runs alone, since browsers notice the new
// addresses and take the machine's network for changed.

import { execFileSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import type { Program } from '../../deploy/local/launch.js';

export type Host = {
  readonly ip: string;
  /** Returns the program such that it runs on this host. */
  on(program: Program): Program;
  cut(): void;
  /** Cuts the host off from another one only. */
  cutFrom(other: Host): void;
  /** Undoes `cut` and `cutFrom`. */
  join(): void;
};

export type Hosts = { readonly all: readonly Host[]; remove(): void };

export function canMakeHosts(): boolean {
  try {
    createHosts(1).remove();
    return true;
  } catch {
    return false; // No root, or no iproute2.
  }
}

export function createHosts(count: number): Hosts {
  const id = `slu${process.pid.toString(36)}${randomInt(1_296).toString(36)}`;
  const net = `10.${randomInt(100, 250)}.${randomInt(250)}`;
  const numbers = Array.from({ length: count }, (_, index) => index + 1);
  const remove = () => {
    for (const number of numbers) tryIp('netns', 'del', `${id}-${number}`);
    tryIp('link', 'del', id);
  };
  process.once('exit', remove);
  try {
    ip('link', 'add', id, 'type', 'bridge');
    ip('addr', 'add', `${net}.254/24`, 'dev', id);
    ip('link', 'set', id, 'up');
    const all = numbers.map((number) => createHost(id, number, `${net}.${number}`));
    return { all, remove };
  } catch (error) {
    remove();
    throw error;
  }
}

function createHost(bridge: string, number: number, address: string): Host {
  const namespace = `${bridge}-${number}`;
  const cable = `${bridge}v${number}`;
  const cutFrom = new Set<string>();
  const within = (...args: readonly string[]) => ip('-n', namespace, ...args);
  ip('netns', 'add', namespace);
  ip('link', 'add', cable, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace);
  ip('link', 'set', cable, 'master', bridge, 'up');
  within('addr', 'add', `${address}/24`, 'dev', 'eth0');
  within('link', 'set', 'eth0', 'up');
  within('link', 'set', 'lo', 'up');
  return {
    ip: address,
    on: ({ command, args, ...more }) => ({
      command: 'nsenter',
      args: [`--net=/run/netns/${namespace}`, command, ...args],
      ...more,
    }),
    cut: () => ip('link', 'set', cable, 'down'),
    cutFrom: (other) => {
      within('route', 'add', 'blackhole', other.ip);
      cutFrom.add(other.ip);
    },
    join: () => {
      ip('link', 'set', cable, 'up');
      for (const other of cutFrom) within('route', 'del', 'blackhole', other);
      cutFrom.clear();
    },
  };
}

function ip(...args: readonly string[]): void {
  execFileSync('ip', args, { stdio: 'pipe' });
}

function tryIp(...args: readonly string[]): void {
  try {
    ip(...args);
  } catch {
    // It did not exist.
  }
}
