// How fast does a backlog drain while the load that caused it goes on? Ten minutes of events wait in Redis. They are
// loaded faster than that while the workers are stopped, in segments of the size that they have at that rate. Then the
// workers start, and the load goes on.

import { Redis } from 'ioredis';
import { type CpuTimes, type Deployment, startDeployment } from '../deployment/deployment.js';
import { assertStored, countRecords, stallMsMax, untilCounted } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { type LatencyFigures, latencyFigures } from '../latency/figures.js';
import { sendClosedLoop } from '../load/closed-loop.js';
import { bulkBodies, singleBodies } from '../load/events.js';
import { newLatencies, recordLatency, startOpenLoop } from '../load/open-loop.js';
import type { Options } from '../options.js';
import type { Progress } from '../progress.js';
import { cpuBetween, perRecord } from '../throughput/measure.js';
import { readSegments, usedMemory } from './redis-memory.js';

export type BacklogResult = {
  /** Events that waited when the workers started, and their number of segments. */
  readonly events: number;
  readonly segments: number;
  readonly redisBytesPerEvent: number;
  /** Of the events that kept coming, one per request. */
  readonly ratePerSecond: number;
  readonly drainSeconds: number;
  readonly drainedPerSecond: number;
  /** µs of CPU per event, for those that drained and those that kept coming. */
  readonly cpu: CpuTimes;
  readonly latency: LatencyFigures;
  /** What was left of the backlog, by seconds since the workers started. */
  readonly left: readonly { readonly seconds: number; readonly events: number }[];
};

const standardRate = 5_000;
/**
 * A segment is full after two commits of the bulk load, 1200 rows. That many come at that rate in the 250 ms after which
 * a segment is sealed while ClickHouse is away and the workers run. Without this setting there would be fewer, larger
 * segments.
 */
const segmentBytesMax = 250_000;
const bulk = { connections: 6, events: 100, bodiesEach: 200, requestsPerRun: 600 };
const live = { connections: 128, bodies: 100_000 };
const lookEveryMs = 500;

/** Rejects if an acknowledged event is not stored or the backlog stops draining. */
export async function runBacklog(options: Options, progress: Progress): Promise<BacklogResult> {
  const env = { SEGMENT_BYTES_MAX: String(segmentBytesMax), ...options.env };
  const deployment = await startDeployment({ env, profileDir: options.profileDir });
  const { own } = deployment;
  const redis = new Redis(deployment.redisUrl);
  try {
    const [backlogId = '', liveId = ''] = await deployment.addEnvironments(2, 'none');
    for (const worker of own?.sluice.workers ?? []) await worker.stop();
    const before = await usedMemory(redis);
    const events = await fill(deployment, backlogId, options.backlogEvents, progress);
    const redisBytesPerEvent = ((await usedMemory(redis)) - before) / events;
    const { length: segments } = await readSegments(redis, 0);
    progress.say(`backlog: ${events} events in ${segments} segments; the workers start`);

    const ratePerSecond = options.rate ?? standardRate;
    const bodies = singleBodies(live.bodies, { appId: liveId, first: 0 });
    const latencies = newLatencies();
    for (const worker of own?.sluice.workers ?? []) await worker.restart();
    const cpuBefore = deployment.cpu();
    const startedAt = performance.now();
    const load = await startOpenLoop(
      {
        url: deployment.url,
        bodies,
        ratePerSecond,
        requests: Number.POSITIVE_INFINITY,
        connections: live.connections,
      },
      (answered) => recordLatency(latencies, answered),
    );
    const left = await drain(deployment, backlogId, events, startedAt, progress);
    const drainSeconds = (performance.now() - startedAt) / 1000;
    load.stop();
    const { requests } = await load.ended;
    await untilCounted(() => countRecords(deployment, liveId), requests);
    const used = cpuBetween(cpuBefore, deployment.cpu());
    await assertStored(deployment, backlogId, { events });
    await assertStored(deployment, liveId, { events: requests });
    return {
      events,
      segments,
      redisBytesPerEvent,
      ratePerSecond,
      drainSeconds,
      drainedPerSecond: events / drainSeconds,
      cpu: perRecord(used, events + requests),
      latency: latencyFigures(latencies),
      left,
    };
  } finally {
    redis.disconnect();
    await deployment.stop();
  }
}

/** Loads at least this many events; settles with their number. */
async function fill(deployment: Deployment, appId: string, wanted: number, progress: Progress) {
  const bodies = Array.from({ length: bulk.connections }, (_, connection) =>
    bulkBodies(bulk.bodiesEach, bulk.events, {
      appId,
      first: connection * bulk.bodiesEach * bulk.events,
    }),
  );
  let events = 0;
  const watch = progress.watch('backlog', () => `${events} of ${wanted} events acknowledged`);
  try {
    while (events < wanted) {
      const missing = Math.ceil((wanted - events) / bulk.events / bulk.connections) * bulk.connections;
      const requests = Math.min(bulk.requestsPerRun, missing);
      await sendClosedLoop({ url: deployment.url, bodies, requests });
      events += requests * bulk.events;
    }
  } finally {
    watch.end();
  }
  return events;
}

async function drain(
  deployment: Deployment,
  appId: string,
  events: number,
  startedAt: number,
  progress: Progress,
): Promise<BacklogResult['left'][number][]> {
  const left: BacklogResult['left'][number][] = [];
  let stored = 0;
  const watch = progress.watch('backlog', () => `${stored} of ${events} stored`);
  try {
    for (let movedAt = performance.now(); ; ) {
      const now = await countRecords(deployment, appId);
      if (now > stored) movedAt = performance.now();
      stored = now;
      left.push({ seconds: (performance.now() - startedAt) / 1000, events: events - stored });
      if (stored >= events) return left;
      if (performance.now() - movedAt > stallMsMax) {
        throw new BenchError(`${events} events were acknowledged, the backlog stays at ${events - stored}`);
      }
      await new Promise((resolve) => setTimeout(resolve, lookEveryMs));
    }
  } finally {
    watch.end();
  }
}
