// The four kinds of children on one machine: how each is started, and when it counts as healthy.

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Config } from '../../src/config.js';
import { redisPasswordFile, redisSocket } from '../../src/config-redis.js';
import type { ChildSpec } from './child.js';
import { placeOf } from './clickhouse/places.js';
import { reachableHost } from './ports.js';
import { redisConfig } from './redis-config.js';
import { readyRedisPid } from './redis-probe.js';
import { findOrMakeSecret } from './secrets.js';

const minuteMs = 60_000;

/** Redis answers while it loads, which takes minutes for a large append-only file. */
export async function redisSpec(config: Config): Promise<ChildSpec> {
  const dir = join(config.dataDir, 'redis');
  mkdirSync(dir, { recursive: true });
  const file = join(dir, 'redis.conf');
  const { redisPort: port, redisAppendfsync: appendfsync, redisMemoryBytesMax: memoryBytesMax } = config;
  const socket = redisSocket(config.dataDir);
  const hasSocket = socket !== undefined && (await holdsSockets(socket));
  const password = findOrMakeSecret(redisPasswordFile(config.dataDir));
  writeFileSync(file, redisConfig({ port, dir, password, hasSocket, appendfsync, memoryBytesMax }), {
    mode: 0o600,
  });
  return {
    name: 'redis',
    program: { command: 'redis-server', args: [file], env: process.env },
    ipc: false,
    healthy: async (pid) => (await readyRedisPid(port, password)) === pid,
    healthyMsMax: 30 * minuteMs,
    stopMsMax: 20_000,
  };
}

/** Whether a server can listen on a socket at a path, since some shared file systems support no sockets. Leaves nothing there. */
async function holdsSockets(path: string): Promise<boolean> {
  rmSync(path, { force: true });
  const server = createServer();
  const listens = new Promise<boolean>((settle) => {
    server.once('error', () => settle(false));
    server.listen(path, () => settle(true));
  });
  if (!(await listens)) return false;
  await new Promise((resolve) => server.close(resolve));
  return true;
}

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
