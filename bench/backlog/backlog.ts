// How much memory does a backlog take in Redis, and how fast does it drain while its load goes on? The workers are stopped
// while ten minutes' worth of events is loaded at once, in segments of the size that this rate makes. Then the workers start,
// and events keep coming at that rate.

import { setTimeout as pause } from 'node:timers/promises';
import type { Context } from '../context.js';
import type { CpuTimes, Deployment } from '../deployment/deployment.js';
import { perRecord, startMeter } from '../deployment/meter.js';
import { assertStored, countRecords, stallMsMax, untilCounted } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { type LatencyFigures, latencyFigures } from '../load/histogram.js';
import { latenciesOf } from '../load/second.js';
import { allAnswered, prepareLoad } from '../load/threads.js';
import type { Progress } from '../progress.js';
import { readSegments, usedMemory } from './redis-memory.js';

export type BacklogResult = {
  /** Waiting when the workers started. */
  readonly events: number;
  readonly segments: number;
  readonly redisBytesPerEvent: number;
  /**
   * The highest ratio of memory in Redis to bytes of rows, over the sealed segments above 100 kB: in smaller ones the
   * allocator's rounding dominates.
   */
  readonly memoryTimesMost: number;
  /** Of the events that kept coming, one per request. */
  readonly ratePerSecond: number;
  readonly drainSeconds: number;
  readonly drainedPerSecond: number;
  /** µs of CPU per event, both drained events and those that kept coming. */
  readonly cpu: CpuTimes;
  readonly latency: LatencyFigures;
  /** The rest of the backlog, by seconds since the workers started. */
  readonly left: readonly { readonly seconds: number; readonly events: number }[];
};

const standardRate = 5_000;
/**
 * Two commits of the bulk load, 1200 rows, fill a segment. While ClickHouse is away and the workers run, a segment is sealed
 * after 250 ms, in which the standard rate brings as many rows. Without this setting there would be fewer, larger segments.
 */
export const backlogEnv = { SEGMENT_BYTES_MAX: '250000' };
const bulk = { way: 'bulk-100', events: 100, connections: 6 };
const liveConnections = 128;
const segmentBytesMin = 100_000;
const lookEveryMs = 500;

/** Rejects if an acknowledged event is not stored or the backlog stops draining. */
export async function runBacklog({ deployment, redis, options, progress }: Context): Promise<BacklogResult> {
  const { url, own } = deployment;
  const [backlogId = '', liveId = ''] = await deployment.addEnvironments(2, 'none');
  for (const worker of own.sluice.workers) await worker.stop();
  const before = await usedMemory(redis);
  const events = await fill(deployment, backlogId, options.backlogEvents, progress);
  const redisBytesPerEvent = ((await usedMemory(redis)) - before) / events;
  const segments = await readSegments(redis, 0);
  // The last one is open and has spare room.
  const large = segments.slice(0, -1).filter(({ bytes }) => bytes > segmentBytesMin);
  const memoryTimesMost = Math.max(...large.map(({ bytes, memoryBytes }) => memoryBytes / bytes));
  progress.say(`backlog: ${events} events in ${segments.length} segments; the workers start`);

  const ratePerSecond = options.rate ?? standardRate;
  const live = await prepareLoad({
    url,
    way: 'single',
    appIds: [liveId],
    connections: liveConnections,
    rate: ratePerSecond,
    seconds: 3_600,
    threads: options.threads,
    sendsAll: true,
  });
  for (const worker of own.sluice.workers) await worker.restart();
  const read = startMeter(() => deployment.cpu());
  const sending = live.send();
  const left = await drain(deployment, backlogId, events, progress);
  const { seconds: drainSeconds } = read();
  live.stop();
  const { seconds } = await sending;
  const requests = allAnswered(seconds);
  await untilCounted(() => countRecords(deployment, liveId), requests);
  const { used } = read();
  await assertStored(deployment, backlogId, { events });
  await assertStored(deployment, liveId, { events: requests });
  return {
    events,
    segments: segments.length,
    redisBytesPerEvent,
    memoryTimesMost,
    ratePerSecond,
    drainSeconds,
    drainedPerSecond: events / drainSeconds,
    cpu: perRecord(used, events + requests),
    latency: latencyFigures(latenciesOf(seconds)),
    left,
  };
}

/** Loads at least this many events; settles with their number. */
async function fill({ url }: Deployment, appId: string, wanted: number, progress: Progress): Promise<number> {
  let answers = 0;
  const { way, connections } = bulk;
  const load = await prepareLoad(
    { url, way, appIds: [appId], connections, seconds: 3_600, threads: 1 },
    ({ endings }) => {
      answers += endings['200']?.totalCount ?? 0;
      if (answers * bulk.events >= wanted) load.stop();
    },
  );
  const watch = progress.watch('backlog', () => `${answers * bulk.events} of ${wanted} events acknowledged`);
  try {
    return allAnswered((await load.send()).seconds) * bulk.events;
  } finally {
    watch.end();
  }
}

async function drain(
  deployment: Deployment,
  appId: string,
  events: number,
  progress: Progress,
): Promise<BacklogResult['left']> {
  const startedAt = performance.now();
  const left: { seconds: number; events: number }[] = [];
  let stored = 0;
  const watch = progress.watch('backlog', () => `${stored} of ${events} stored`);
  try {
    for (let movedAt = startedAt; ; await pause(lookEveryMs)) {
      const counted = await countRecords(deployment, appId);
      const now = performance.now();
      if (counted > stored) movedAt = now;
      stored = counted;
      left.push({ seconds: (now - startedAt) / 1_000, events: events - stored });
      if (stored >= events) return left;
      if (now - movedAt > stallMsMax) {
        throw new BenchError(`${events} events were acknowledged, the backlog stays at ${events - stored}`);
      }
    }
  } finally {
    watch.end();
  }
}
