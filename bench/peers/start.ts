// Starts the floors of HTTP and the peers as processes: on loopback ports, with a Redis of their own that is configured
// like the deployment's, and with a database of their own in the deployment's ClickHouse.

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Child, startChild } from '../../harness/child.js';
import { plainEnvironment } from '../../harness/environment.js';
import { freePort } from '../../harness/free-port.js';
import type { RedisHandle } from '../../harness/services.js';
import { removeTempDir, tempDir } from '../../harness/temp-dir.js';
import type { CpuTimes, Deployment, ProcessName } from '../deployment/deployment.js';
import { cpuMicroseconds, systemMicroseconds } from '../deployment/processes.js';
import { mergesEnded } from '../deployment/stored.js';
import type { Subject } from '../throughput/measure.js';
import type { SubjectName } from '../throughput/ways.js';
import { peerDatabase, peerTable, peerTableStatement } from './peer-names.js';
import { startFloorRedis } from './redis-append.js';

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
  const subjects = new Map<SubjectName, Promise<Subject>>();
  let floorRedis: Promise<RedisHandle> | undefined;
  let table: Promise<unknown> | undefined;

  const redis = () => {
    floorRedis ??= startFloorRedis();
    return floorRedis;
  };
  const createTable = () => {
    table ??= (async () => {
      await deployment.rows(`CREATE DATABASE IF NOT EXISTS ${peerDatabase}`);
      await deployment.rows(peerTableStatement);
    })();
    return table;
  };

  async function start(program: string, env: NodeJS.ProcessEnv, url?: string): Promise<Child> {
    const child = await startChild({
      name: program,
      program: {
        command: process.execPath,
        args: [fileURLToPath(new URL(`./${program}.js`, import.meta.url))],
        env: { ...plainEnvironment(), ...env },
      },
      ipc: true,
      healthy: async () => {
        if (url === undefined) return true;
        await (await fetch(url, { signal: AbortSignal.timeout(2_000) })).arrayBuffer();
        return true;
      },
      healthyDeadlineMs: 30_000,
    });
    children.push(child);
    return child;
  }

  async function startUws(program: 'uws' | 'uws-synced'): Promise<Subject> {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const child = await start(program, { PORT: String(port), FILE: join(files, program) }, `${url}/count`);
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
    const from = (appId: string) => `FROM ${peerDatabase}.${peerTable} WHERE app_id = '${appId}'`;
    return {
      url,
      cpu: () =>
        Object.fromEntries(
          Object.entries(pids).map(([process, pid]) => [process, cpuMicroseconds(pid)]),
        ) as CpuTimes,
      count: async (appId) => {
        const [row] = await deployment.rows<{ n: number }>(`SELECT toUInt32(count()) AS n ${from(appId)}`);
        return row?.n ?? 0;
      },
      stored: async (appId) => {
        const [row] = await deployment.rows<{ events: number; ids: number }>(
          `SELECT toUInt32(count()) AS events, toUInt32(uniqExact(event_id)) AS ids ${from(appId)}`,
        );
        return row ?? { ids: 0 };
      },
      settle: () => mergesEnded(deployment),
    };
  }

  return {
    subject: (name) => {
      const started =
        subjects.get(name) ?? (name === 'uws' || name === 'uws-synced' ? startUws(name) : startStoring(name));
      subjects.set(name, started);
      return started;
    },
    redis,
    stop: async () => {
      await Promise.all(children.map((child) => child.stop()));
      removeTempDir(files);
      const server = await floorRedis?.catch(() => undefined);
      await server?.remove();
    },
  };
}
