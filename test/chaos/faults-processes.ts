// Processes are killed, terminated, or paused for long enough that others take over their work.

import type { Child } from '../harness/services.js';
import { type AnyWorld, type Fault, hold } from './fault.js';
import type { ProcessPart } from './parts.js';

const ours = ['api-1', 'api-2', 'worker-1', 'worker-2'] as const;
const stores = ['redis', 'clickhouse'] as const;
const storesOfThree = [
  'redis-1',
  'redis-2',
  'redis-3',
  'clickhouse-1',
  'clickhouse-2',
  'clickhouse-3',
] as const;

export function childOf({ processes }: Pick<AnyWorld, 'processes'>, part: ProcessPart): Child {
  const child = processes.get(part);
  if (child === undefined) throw new Error(`there is no process ${part}`);
  return child;
}

/** Notes that callers of this process may get no answer. */
export function disturb(world: AnyWorld, part: ProcessPart): void {
  if (part.startsWith('api-')) world.disturbedApis.add(part);
}

function kill(name: string, part: ProcessPart): Fault<AnyWorld> {
  return {
    name,
    touches: [part],
    run: async (world, random) => {
      disturb(world, part);
      const child = childOf(world, part);
      const { signal } = await child.kill9();
      await hold(random.int(0, 800));
      await child.restart();
      return signal === 'SIGKILL';
    },
  };
}

function terminate(name: string, part: ProcessPart): Fault<AnyWorld> {
  return {
    name,
    touches: [part],
    run: async (world) => {
      disturb(world, part);
      const child = childOf(world, part);
      const { code } = await child.sigterm(40_000);
      await child.restart();
      return code === 0;
    },
  };
}

/** Pauses a process. A worker pauses longer than a job's lock and the check for silent workers take, so it returns as a zombie. */
function stop(name: string, part: ProcessPart): Fault<AnyWorld> {
  const [min, max] = part.startsWith('worker') ? [2_200, 3_500] : [400, 2_500];
  return {
    name,
    touches: [part],
    run: async (world, random) => {
      disturb(world, part);
      const child = childOf(world, part);
      child.sigstop();
      await hold(random.int(min, max));
      child.sigcont();
      return child.running;
    },
  };
}

/** Kills all these processes at once, and restarts the stores before ours. */
export function killEverythingOf(parts: readonly ProcessPart[]): Fault<AnyWorld> {
  return {
    name: 'kill everything',
    touches: parts,
    run: async (world) => {
      for (const part of parts) disturb(world, part);
      const [own, others] = [true, false].map((isOwn) =>
        parts.filter((part) => /^(api|worker)-/.test(part) === isOwn).map((part) => childOf(world, part)),
      ) as [Child[], Child[]];
      const exits = await Promise.all([...others, ...own].map((child) => child.kill9()));
      await Promise.all(others.map((child) => child.restart()));
      await world.untilRedisServes();
      await Promise.all(own.map((child) => child.restart()));
      return exits.every(({ signal }) => signal === 'SIGKILL');
    },
  };
}

function faultsOf(parts: readonly ProcessPart[]): Fault<AnyWorld>[] {
  const ofEach = parts.flatMap((part) => {
    const kind = part.replace(/-\d$/, '');
    return [kill(`kill ${kind}`, part), terminate(`terminate ${kind}`, part), stop(`stop ${kind}`, part)];
  });
  return [...ofEach, killEverythingOf(parts)];
}

export const processFaults = faultsOf([...ours, ...stores]);
/** Killing everything counts as touching Redis too, since our processes restart only when Redis serves. */
export const processFaultsOfNodes = faultsOf([...ours, 'clickhouse-1', 'clickhouse-2']).map((fault) =>
  fault.name === 'kill everything' ? { ...fault, touches: [...fault.touches, 'redis' as const] } : fault,
);
export const processFaultsOfThree = faultsOf([...ours, ...storesOfThree]);
