// Starts the floors of HTTP and the peers as processes on loopback ports. They have a Redis of their own, configured like the
// deployment's, and a database of their own in the deployment's ClickHouse.

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Child, startChild } from '../../harness/child.js';
import { plainEnvironment } from '../../harness/environment.js';
import { freePort } from '../../harness/free-port.js';
import { type RedisHandle, startRedis } from '../../harness/services.js';
import { removeTempDir, tempDir } from '../../harness/temp-dir.js';
import {
  type CpuTimes,
  type Deployment,
  type ProcessName,
  redisMemoryBytesMax,
} from '../deployment/deployment.js';
import { cpuMicroseconds, systemMicroseconds } from '../deployment/processes.js';
import { mergesEnded, numberOf } from '../deployment/stored.js';
import type { Subject } from '../throughput/measure.js';
import type { SubjectName } from '../throughput/ways.js';
import { peerDatabase, peerTable, peerTableStatement } from './shared.js';

export type Peers = {
  /** Starts it at the first call. */
  subject(name: Exclude<SubjectName, 'sluice'>): Promise<Subject>;
  /** The Redis of the peers and of the floor of acknowledging. */
  redis(): Promise<RedisHandle>;
  stop(): Promise<void>;
};

export function preparePeers(deployment: Deployment): Peers {
  const { clickhouse } = deployment.own.sluice;
  const files = tempDir('peers');
  const children: Child[] = [];
  const redis = once(() => startRedis({ appendfsync: 'always', maxmemory: redisMemoryBytesMax }));
  const createTable = once(async () => {
    await deployment.rows(`CREATE DATABASE IF NOT EXISTS ${peerDatabase}`);
    await deployment.rows(peerTableStatement);
  });

  /** With a URL, settles when it answers. */
  async function start(name: string, env: NodeJS.ProcessEnv, url?: string): Promise<Child> {
    const args = [fileURLToPath(new URL(`./${name}.js`, import.meta.url))];
    const child = await startChild({
      name,
      program: { command: process.execPath, args, env: { ...plainEnvironment(), ...env } },
      ipc: true,
      healthy: async () => {
        if (url !== undefined) await (await fetch(url, { signal: AbortSignal.timeout(2_000) })).arrayBuffer();
        return true;
      },
      healthyDeadlineMs: 30_000,
    });
    children.push(child);
    return child;
  }

  async function startUws(more: NodeJS.ProcessEnv): Promise<Subject> {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const child = await start('uws', { PORT: String(port), ...more }, `${url}/count`);
    const count = async () => Number(await (await fetch(`${url}/count`)).text());
    return {
      url,
      cpu: () => ({ api: cpuMicroseconds(child.pid) }),
      systemCpu: () => ({ api: systemMicroseconds(child.pid) }),
      count,
      stored: async () => {
        const answered = await count();
        return { events: answered, ids: answered };
      },
      settle: () => Promise.resolve(),
    };
  }

  async function startStoring(name: 'fastify' | 'node-http'): Promise<Subject> {
    await createTable();
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const env = { PORT: String(port), CLICKHOUSE_URL: clickhouse.testerUrl };
    const pids: Partial<Record<ProcessName, number>> = { clickhouse: clickhouse.pid };
    if (name === 'fastify') {
      const { pid, url: redisUrl } = await redis();
      const withRedis = { ...env, REDIS_URL: redisUrl };
      pids.redis = pid;
      pids.worker = (await start('fastify-worker', withRedis)).pid;
      pids.api = (await start('fastify-api', withRedis, url)).pid;
    } else pids.api = (await start('node-http', env, url)).pid;
    const read = (aggregate: string, appId: string) =>
      numberOf(deployment, aggregate, `${peerDatabase}.${peerTable} WHERE app_id = '${appId}'`);
    const cpu = () => Object.entries(pids).map(([process, pid]) => [process, cpuMicroseconds(pid)]);
    return {
      url,
      cpu: () => Object.fromEntries(cpu()) as CpuTimes,
      count: (appId) => read('count()', appId),
      stored: async (appId) => ({
        events: await read('count()', appId),
        ids: await read('uniqExact(event_id)', appId),
      }),
      settle: () => mergesEnded(deployment),
    };
  }

  const subjects = {
    uws: once(() => startUws({})),
    'uws-synced': once(() => startUws({ FILE: join(files, 'bodies') })),
    fastify: once(() => startStoring('fastify')),
    'node-http': once(() => startStoring('node-http')),
  };
  return {
    subject: (name) => subjects[name](),
    redis,
    stop: async () => {
      await Promise.all(children.map((child) => child.stop()));
      removeTempDir(files);
      if (!redis.called()) return;
      const server = await redis().catch(() => undefined);
      await server?.remove();
    },
  };
}

/** Calls `run` at the first call; all calls get its result. */
function once<Result>(run: () => Promise<Result>) {
  let result: Promise<Result> | undefined;
  const call = () => {
    result ??= run();
    return result;
  };
  return Object.assign(call, { called: () => result !== undefined });
}
