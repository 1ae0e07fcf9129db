// Starts the floors of HTTP and the peers as processes on loopback ports. They have their own Redis, configured like the deployment's, and
// their own database in the deployment's ClickHouse.

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startChild } from '../../test/harness/child.js';
import { plainEnvironment } from '../../test/harness/environment.js';
import { freePort } from '../../test/harness/free-port.js';
import { startRedis } from '../../test/harness/services.js';
import { removeTempDir, tempDir } from '../../test/harness/temp-dir.js';
import { type CpuTimes, type Deployment, redisMemoryBytesMax } from '../deployment/deployment.js';
import { cpuMicroseconds, systemMicroseconds } from '../deployment/processes.js';
import { mergesEnded, numberOf } from '../deployment/stored.js';
import type { Subject } from '../throughput/measure.js';
import { peerDatabase, peerTable, peerTableStatement } from './shared.js';

export type Peers = ReturnType<typeof preparePeers>;

export function preparePeers(deployment: Deployment) {
  const { clickhouse } = deployment.sluice;
  const files = tempDir('peers');
  const enders: (() => Promise<unknown>)[] = [];
  /** Starts a program. If its environment names a port, settles when that port answers. */
  async function start(name: string, env: NodeJS.ProcessEnv): Promise<number> {
    const args = [fileURLToPath(new URL(`./${name}.js`, import.meta.url))];
    const child = await startChild({
      name,
      program: { command: process.execPath, args, env: { ...plainEnvironment(), ...env } },
      ipc: true,
      healthy: async () => {
        const url = `http://127.0.0.1:${env.PORT}/count`;
        if (env.PORT) await (await fetch(url, { signal: AbortSignal.timeout(2_000) })).arrayBuffer();
        return true;
      },
      healthyDeadlineMs: 30_000,
    });
    enders.push(() => child.stop());
    return child.pid;
  }

  async function startUws(env: NodeJS.ProcessEnv): Promise<Subject> {
    const PORT = String(await freePort());
    const url = `http://127.0.0.1:${PORT}`;
    const pid = await start('uws', { PORT, ...env });
    const count = async () => Number(await (await fetch(`${url}/count`)).text());
    return {
      url,
      cpu: () => ({ api: cpuMicroseconds(pid) }),
      systemCpu: () => ({ api: systemMicroseconds(pid) }),
      count,
      stored: async () => {
        const answered = await count();
        return { events: answered, ids: answered };
      },
      settle: async () => undefined,
    };
  }

  async function startFastify(): Promise<Subject> {
    await deployment.rows(`CREATE DATABASE IF NOT EXISTS ${peerDatabase}`);
    await deployment.rows(peerTableStatement);
    const PORT = String(await freePort());
    const redis = await startRedis({ appendfsync: 'always', maxmemory: redisMemoryBytesMax });
    enders.push(() => redis.remove());
    const { pid, url: REDIS_URL } = redis;
    const pids = {
      redis: pid,
      clickhouse: clickhouse.pid,
      worker: await start('fastify-worker', { CLICKHOUSE_URL: clickhouse.testerUrl, REDIS_URL }),
      api: await start('fastify-api', { PORT, REDIS_URL }),
    };
    const read = (aggregate: string, appId: string) =>
      numberOf(deployment, aggregate, `${peerDatabase}.${peerTable} WHERE app_id = '${appId}'`);
    const cpu = () => Object.entries(pids).map(([process, pid]) => [process, cpuMicroseconds(pid)]);
    return {
      url: `http://127.0.0.1:${PORT}`,
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
    fastify: once(startFastify),
  };
  return {
    /** Starts the subject at the first call. */
    subject: (name: keyof typeof subjects) => subjects[name](),
    stop: async () => {
      for (const end of enders.toReversed()) await end();
      removeTempDir(files);
    },
  };
}

/** Calls `run` at the first call; all calls get the same result. */
function once<Result>(run: () => Promise<Result>): () => Promise<Result> {
  let result: Promise<Result> | undefined;
  return () => {
    result ??= run();
    return result;
  };
}
