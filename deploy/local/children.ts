// The children that are programs of ours, on one machine: how each is started, and when it counts as healthy.

import { fileURLToPath } from 'node:url';
import type { Config } from '../../src/config.js';
import type { ChildSpec } from './child.js';
import { placeOf } from './clickhouse/places.js';
import { reachableHost } from './ports.js';

const minuteMs = 60_000;

/** The spec of a ClickHouse server by its number, from 1. */
export function clickhouseSpec(config: Config, number: number): ChildSpec {
  const { name, httpPort } = placeOf(config, number);
  return {
    name,
    program: nodeProgram('deploy/local/clickhouse/main.js', String(number)),
    ipc: true,
    healthy: () => answersOk(`http://127.0.0.1:${httpPort}/ping`),
    healthyMsMax: 10 * minuteMs,
    stopMsMax: 20_000,
  };
}

export function workerSpec(config: Config, number: number): ChildSpec {
  return {
    name: config.workerProcesses === 1 ? 'worker' : `worker-${number}`,
    program: nodeProgram('workers/main.js'),
    ipc: true,
    healthy: async () => true,
    healthyMsMax: minuteMs,
    stopMsMax: 25_000,
  };
}

/**
 * The API processes share one port, so any of them may answer the health check of another one that is starting. `env`: what a start on one
 * machine adds to the environment.
 */
export function apiSpec(config: Config, number: number, env: NodeJS.ProcessEnv): ChildSpec {
  const program = nodeProgram('src/main.js');
  return {
    name: config.apiProcesses === 1 ? 'api' : `api-${number}`,
    program: { ...program, env: { ...program.env, ...env } },
    ipc: true,
    healthy: () => answersOk(`http://${urlHost(config.host)}:${config.port}/health/ready`),
    healthyMsMax: 2 * minuteMs,
    stopMsMax: 25_000,
  };
}

export function nodeProgram(compiled: string, ...args: string[]): ChildSpec['program'] {
  const path = fileURLToPath(new URL(`../../${compiled}`, import.meta.url));
  return { command: process.execPath, args: [path, ...args], env: process.env };
}

/** The host in URLs for use on this machine. */
export function urlHost(host: string): string {
  const reachable = reachableHost(host);
  return reachable.includes(':') ? `[${reachable}]` : reachable;
}

export async function answersOk(url: string): Promise<boolean> {
  // Closes the connection after the answer: an open one would delay a server that is stopping.
  const reply = await fetch(url, { headers: { connection: 'close' }, signal: AbortSignal.timeout(5_000) });
  await reply.arrayBuffer();
  return reply.ok;
}
