// The series that a soak measures, and how it measures them.

import { memoryFloorMib, type Point } from '../../bench/report/trend.js';
import { Redis } from '../../src/packages/ioredis.js';
import { shardKeys } from '../../src/redis/keys.js';
import { openDescriptors, residentMib } from '../fuzz/process-figures.js';
import type { Child, SluiceHandle } from '../harness/services.js';

export type SeriesName = keyof typeof series;

/** Units are in the names. Growth up to `floor` does not count. */
export const series = {
  'api RSS, MiB': { floor: memoryFloorMib.api },
  'worker RSS, MiB': { floor: memoryFloorMib.worker },
  'api heap after gc, MiB': { floor: 4 },
  'worker heap after gc, MiB': { floor: 4 },
  'clickhouse RSS, MiB': { floor: memoryFloorMib.clickhouse },
  'redis RSS, MiB': { floor: memoryFloorMib.redis },
  'redis used_memory without claims, MiB': { floor: 8 },
  'redis keys without expiry': { floor: 10 },
  'api descriptors': { floor: 8 },
  'worker descriptors': { floor: 8 },
  'clickhouse descriptors': { floor: 64 },
  'redis descriptors': { floor: 8 },
  'clickhouse parts': { floor: 40 },
  'backlog, rows': { floor: 20_000 },
} as const;

export type Samples = Readonly<Record<SeriesName, Point[]>>;

/** Samples every `everyMs`; the returned function stops that and settles with all series. */
export function startSampling(sluice: SluiceHandle, everyMs: number): () => Promise<Samples> {
  const samples = Object.fromEntries(Object.keys(series).map((name) => [name, []])) as unknown as Samples;
  const redis = new Redis(sluice.redisUrl, { retryStrategy: () => 200, commandTimeout: 5_000 });
  redis.on('error', () => {
    // While Redis is down there are no samples of it.
  });
  const startedMs = performance.now();
  const note = (name: SeriesName, value: number | undefined) => {
    if (value !== undefined && value > 0) samples[name].push({ atMs: performance.now() - startedMs, value });
  };
  // These two are never killed, so whatever they accumulate stays.
  const [api, worker] = [sluice.api[0] as Child, sluice.workers[0] as Child];

  async function sample(): Promise<void> {
    const { clickhouse, redis: server } = sluice;
    for (const [name, child] of Object.entries({ api, worker, clickhouse, redis: server })) {
      if (!child.running) continue;
      note(`${name} RSS, MiB` as SeriesName, residentMib(child.pid));
      note(`${name} descriptors` as SeriesName, openDescriptors(child.pid));
    }
    note('api heap after gc, MiB', heapOf(api));
    note('worker heap after gc, MiB', heapOf(worker));
    await Promise.allSettled([
      sampleRedis(redis).then(({ usedMib, lasting, backlogRows }) => {
        note('redis used_memory without claims, MiB', usedMib);
        note('redis keys without expiry', lasting);
        samples['backlog, rows'].push({ atMs: performance.now() - startedMs, value: backlogRows });
      }),
      sluice
        .rows<{ parts: string }>(
          `SELECT toString(count()) AS parts FROM system.parts WHERE active AND database = '${sluice.database}'`,
        )
        .then(([row]) => note('clickhouse parts', Number(row?.parts))),
    ]);
  }

  let running: Promise<void> = Promise.resolve();
  let isSampling = false;
  const timer = setInterval(() => {
    if (isSampling) return;
    isSampling = true;
    running = sample().finally(() => {
      isSampling = false;
    });
  }, everyMs);
  return async () => {
    clearInterval(timer);
    await running;
    redis.disconnect();
    return samples;
  };
}

/** Asks the process for its heap size, and returns the last answer so far, to an earlier request. */
function heapOf(child: Child): number | undefined {
  if (!child.running) return undefined;
  const answers = [...child.output().matchAll(/^\{"heapMib":([\d.]+)\}$/gm)];
  process.kill(child.pid, 'SIGUSR2');
  const last = answers.at(-1)?.[1];
  return last === undefined ? undefined : Number(last);
}

async function sampleRedis(redis: Redis) {
  const claimBytes = Number(await redis.memory('USAGE', shardKeys.claims(0), 'SAMPLES', 0));
  const usedBytes = Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1]);
  const keyspace = /^db0:keys=(\d+),expires=(\d+)/m.exec(await redis.info('keyspace'));
  const [segments = 0, rows] = await Promise.all([
    redis.zcard(shardKeys.segments(0)),
    redis.hget(shardKeys.state(0), 'rows'),
  ]);
  return {
    usedMib: (usedBytes - claimBytes) / 1024 ** 2,
    // Segments and their jobs come and go with the backlog, so they are left out.
    lasting: Number(keyspace?.[1] ?? 0) - Number(keyspace?.[2] ?? 0) - 2 * segments,
    backlogRows: Number(rows ?? 0),
  };
}
