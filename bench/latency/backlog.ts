// How much memory does a backlog take in Redis, and how fast does it drain while the load continues? The workers are stopped while ten
// minutes' worth of events is loaded at once, in segments of the size that this rate produces. Then the workers start, and events keep
// arriving at that rate.

import type { Redis } from 'ioredis';
import { segmentOfMember, shardKeys } from '../../src/redis/keys.js';
import type { Context } from '../context.js';
import type { Deployment } from '../deployment/deployment.js';
import { prepareIngestion } from '../deployment/ingestion.js';
import { perRecord, startMeter } from '../deployment/meter.js';
import { assertStored, untilCounted } from '../deployment/stored.js';
import { latencyFigures } from '../load/histogram.js';
import { latenciesOf } from '../load/second.js';
import { allAnswered, prepareLoad } from '../load/threads.js';
import type { Progress } from '../progress.js';

const standardRate = 5_000;
/**
 * With this, two commits of the bulk load, 1200 rows, fill a segment: as many as the standard rate brings in a quarter of a second. Without
 * it there would be fewer and larger segments, since stopped workers seal none by age.
 */
export const backlogEnv = { SEGMENT_BYTES_MAX: '250000' };
const bulk = { way: 'bulk-100', events: 100, connections: 6 };
/** In smaller segments the allocator's rounding would dominate. */
const segmentBytesMin = 100_000;
const lookEveryMs = 500;

/** Rejects if an acknowledged event is not stored or the backlog stops draining. */
export async function runBacklog({ deployment, options, progress }: Context) {
  const { redis, sluice } = deployment;
  const [backlogId = '', liveId = ''] = await deployment.addEnvironments(2, 'none');
  for (const worker of sluice.workers) await worker.stop();
  const before = await usedMemory(redis);
  const events = await fill(deployment, backlogId, options.backlogEvents, progress);
  const redisBytesPerEvent = ((await usedMemory(redis)) - before) / events;
  const segments = await readSegments(redis);
  // The last segment is open and has spare room.
  const large = segments.slice(0, -1).filter(({ bytes }) => bytes > segmentBytesMin);
  progress.say(`backlog: ${events} events in ${segments.length} segments; the workers start`);

  const ratePerSecond = options.rate ?? standardRate;
  const ingestion = await prepareIngestion(deployment, liveId, ratePerSecond, options.threads);
  for (const worker of sluice.workers) await worker.restart();
  const read = startMeter(deployment.cpu);
  ingestion.begin();
  const left = await drain(deployment, backlogId, events, progress);
  const { seconds: drainSeconds } = read();
  const live = await ingestion.end();
  const { used } = read();
  await assertStored(deployment, backlogId, { events });
  return {
    /** How many events were waiting when the workers started. */
    events,
    segments: segments.length,
    redisBytesPerEvent,
    /** The highest ratio of memory in Redis to bytes of rows, over the large sealed segments. */
    memoryTimesMost: Math.max(...large.map(({ bytes, memoryBytes }) => memoryBytes / bytes)),
    /** The rate of the events that kept arriving, one per request. */
    ratePerSecond,
    drainSeconds,
    drainedPerSecond: events / drainSeconds,
    /** µs of CPU per event, over both drained events and those that kept arriving. */
    cpu: perRecord(used, events + live.events),
    latency: latencyFigures(latenciesOf(live.seconds)),
    left,
  };
}

/** Loads at least this many events; settles with their number. */
async function fill({ url }: Deployment, appId: string, wanted: number, progress: Progress): Promise<number> {
  const { way, connections } = bulk;
  const [appIds, requests] = [[appId], Math.ceil(wanted / bulk.events)];
  const ends = { requests, seconds: Number.POSITIVE_INFINITY };
  const load = await prepareLoad({ url, way, appIds, connections, ...ends, threads: 1, isOwn: true });
  const words = () => `${load.answers() * bulk.events} of ${wanted} events acknowledged`;
  const { seconds } = await progress.during('backlog', words, load.send);
  return allAnswered(seconds) * bulk.events;
}

/** Settles with the remaining backlog, by seconds since the workers started. */
async function drain(deployment: Deployment, appId: string, events: number, progress: Progress) {
  const startedAt = performance.now();
  const left: { seconds: number; events: number }[] = [];
  let stored = 0;
  const count = async () => {
    stored = await deployment.count(appId);
    left.push({ seconds: (performance.now() - startedAt) / 1_000, events: events - stored });
    return stored;
  };
  const untilDrained = () => untilCounted(count, events, undefined, lookEveryMs);
  await progress.during('backlog', () => `${stored} of ${events} stored`, untilDrained);
  return left;
}

/** The outstanding segments, from the oldest: STRLEN, and MEMORY USAGE, which includes the key and the allocator's rounding. */
async function readSegments(redis: Redis) {
  const found: { bytes: number; memoryBytes: number }[] = [];
  for (const member of await redis.zrange(shardKeys.segments(0), '0', '-1')) {
    const key = shardKeys.segment(0, segmentOfMember(member));
    found.push({ bytes: await redis.strlen(key), memoryBytes: (await redis.memory('USAGE', key)) ?? 0 });
  }
  return found;
}

async function usedMemory(redis: Redis): Promise<number> {
  return Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1]);
}
