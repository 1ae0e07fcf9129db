// The deployment under test: the processes of production on loopback ports, with segments of production's age, a Redis that syncs its file
// before every answer, and data in a temporary folder. Each run gets its own environment, so that its rows can be counted.

import { resolve } from 'node:path';
import { Redis } from 'ioredis';
import { storing } from '../../src/contract/limits.js';
import { createEnvironments, unlimited } from '../../test/harness/accounts.js';
import type { Child } from '../../test/harness/child.js';
import { readMetric } from '../../test/harness/fault-checks.js';
import { untilStored } from '../../test/harness/ingestion.js';
import { startRedisCluster } from '../../test/harness/redis-cluster.js';
import { startRedisReplicas } from '../../test/harness/redis-replicas.js';
import { type RedisHandle, startRedis, startSluice } from '../../test/harness/services.js';
import { cpuMicroseconds, memoryBytes, systemMicroseconds } from './processes.js';
import { countRecords, mergesEnded, readStored } from './stored.js';

export const processNames = ['api', 'redis', 'worker', 'clickhouse'] as const;
export type ProcessName = (typeof processNames)[number];
export type CpuTimes = Readonly<Partial<Record<ProcessName, number>>>;

export type Limits = 'none' | Readonly<Record<string, number>>;

/** Also the subject of measured runs. */
export type Deployment = Awaited<ReturnType<typeof startDeployment>>;

export type DeploymentOptions = {
  /** Environment of the API process and the worker; overrides the defaults. */
  readonly env?: NodeJS.ProcessEnv;
  /** How many Redis masters and ClickHouse servers there are, all reached by ports. By default one of each, Redis by its socket. */
  readonly servers?: number;
  /** From 1 on, Redis is a primary with two replicas and sentinels, reached by ports, and this many replicas must confirm a record. */
  readonly replicasAck?: number;
  /** Writes V8 CPU profiles of the API process and the worker into this folder when they stop. */
  readonly cpuProf?: string;
};

/** Far more than the 2 GiB of backlog from which on the API refuses records. */
export const redisMemoryBytesMax = 6 * 1024 ** 3;

const profiler = new URL('./profile-process.js', import.meta.url);

/** Starts everything; settles when the API is ready. */
export async function startDeployment({ env, servers, replicasAck, cpuProf }: DeploymentOptions = {}) {
  const { redises, url, remove, replicated } = await startRedises(servers, replicasAck);
  const [first] = redises as readonly [RedisHandle];
  const profile =
    cpuProf === undefined ? {} : { NODE_OPTIONS: `--import ${profiler.href}`, PROFILE_DIR: resolve(cpuProf) };
  const sluice = await startSluice({
    redis: first,
    ...(servers !== undefined && { clickhouseServers: servers }),
    env: {
      SEGMENT_AGE_MS_MAX: String(storing.segmentAgeMs),
      ...((servers ?? replicasAck) !== undefined && { REDIS_URL: url }),
      ...(replicasAck !== undefined && { REDIS_REPLICAS_ACK: String(replicasAck) }),
      ...env,
    },
    apiEnv: profile,
    workerEnv: profile,
  });
  const redis = new Redis(first.url, { lazyConnect: true });
  // A function, since a restarted process has another pid.
  const childrenOf = (name: ProcessName): readonly Child[] =>
    ({ api: sluice.api, redis: redises, worker: sluice.workers, clickhouse: sluice.clickhouses })[name];
  const ofEach = (value: (pid: number) => number) =>
    Object.fromEntries(
      processNames.map((name) => [name, childrenOf(name).reduce((sum, { pid }) => sum + value(pid), 0)]),
    ) as Record<ProcessName, number>;
  const { rows } = sluice;
  /** The sum of a metric of the API process over its labels. */
  const metric = async (name: string) => (sluice.api[0] && (await readMetric(sluice.api[0], name))) ?? 0;
  return {
    sluice,
    /** The Redis servers, if they are a primary and replicas. */
    replicated,
    url: sluice.baseUrl,
    /** A connection to the first master. */
    redis,
    /** Runs a statement in the deployment's database. */
    rows,
    metric,
    /** CPU time in µs that each kind of process has used since it started; and the part of it spent in the kernel. */
    cpu: () => ofEach(cpuMicroseconds),
    systemCpu: () => ofEach(systemMicroseconds),
    /** Resident bytes per kind of process. */
    memory: () => ofEach(memoryBytes),
    commits: async () => {
      const count = await metric('sluice_commit_seconds_count');
      return { count, records: await metric('sluice_commit_records_sum') };
    },
    count: (appId: string) => countRecords({ rows }, appId),
    stored: async (appId: string) => {
      // The count alone is not enough: one event may be stored twice while another one is still missing.
      await untilStored(sluice);
      return readStored({ rows }, appId);
    },
    settle: () => mergesEnded({ rows }),
    /** Creates environments. Settles with their app_ids when the API knows them and their limits. */
    addEnvironments: (count: number, limits: Limits) =>
      createEnvironments(sluice, new Array<readonly string[]>(count).fill(optionsOf(limits))),
    stop: async () => {
      redis.disconnect();
      await sluice.stop();
      await remove();
    },
  };
}

async function startRedises(masters = 1, replicasAck = 0) {
  const options = { appendfsync: 'always', maxmemory: redisMemoryBytesMax } as const;
  if (replicasAck > 0) {
    const replicated = await startRedisReplicas({ replicas: 2, sentinels: 3 });
    const { servers: redises, url, remove } = replicated;
    return { redises, url, remove, replicated };
  }
  if (masters > 1) {
    const { masters: redises, url, remove } = await startRedisCluster({ ...options, count: masters });
    return { redises, url, remove };
  }
  const redis = await startRedis(options);
  return { redises: [redis], url: redis.url, remove: () => redis.remove() };
}

/** The limits as options of the command `environments set`. */
function optionsOf(limits: Limits): readonly string[] {
  if (limits === 'none') return unlimited;
  return Object.entries(limits).flatMap(([name, value]) => ['--limit', `${name}=${value}`]);
}
