// Latencies at a fixed rate: of the acknowledgement, and from there until the event can be queried. Also those of the
// floor of HTTP at the same rate, which show the machine's share.

import type { Context } from '../context.js';
import { plus, type Records, sumOf, untilCounted } from '../deployment/stored.js';
import { percentile } from '../figures.js';
import { singleBodies } from '../load/events.js';
import { newLatencies, recordLatency, startOpenLoop } from '../load/open-loop.js';
import { measure, type Run, type Subject } from '../throughput/measure.js';
import { type LatencyFigures, latencyFigures, type Spread } from './figures.js';
import { startProbing } from './freshness.js';

export type { Spread } from './figures.js';

export type LatencyRun = Run & {
  readonly ratePerSecond: number;
  readonly latency: LatencyFigures;
  /** Of the service, not of the floor. */
  readonly queryable?: {
    /** From the acknowledgement to ClickHouse's answer that shows the event. */
    readonly ms: Spread;
    readonly probes: number;
    /** How often ClickHouse was asked for probes, and how long an answer took. */
    readonly questionsPerSecond: number;
    readonly questionMs: number;
  };
};

export type LatencyOptions = {
  readonly subject: Subject;
  /** The environment of the load; probes have another one where possible. */
  readonly appId: string;
  readonly probeAppId?: string;
  readonly ratePerSecond: number;
  readonly seconds: number;
  readonly stallMs?: number;
};

const connections = 256;
const bodyCount = 200_000;
const warmUpSeconds = 1;

/** One event per request, sent when due, after a second of warm-up at the same rate. */
export async function runLatency(
  { deployment, redis, progress }: Context,
  options: LatencyOptions,
): Promise<LatencyRun> {
  const { subject, appId, probeAppId, ratePerSecond, seconds } = options;
  const { url } = subject;
  const { ids: _, ...already } = await subject.stored(appId);
  const bodies = singleBodies(Math.min(bodyCount, Math.ceil(ratePerSecond * seconds)), { appId, first: 0 });
  const latencies = newLatencies();
  const send = async (requests: number, counts: boolean) => {
    const load = await startOpenLoop(
      { url, bodies, ratePerSecond, requests, connections },
      counts ? (answered) => recordLatency(latencies, answered) : () => undefined,
    );
    return load.ended;
  };
  const warmUp = Math.max(1, Math.round(ratePerSecond * warmUpSeconds));
  await send(warmUp, false);
  const before: Records = plus(already, { events: warmUp });
  await untilCounted(() => subject.count(appId), sumOf(before), options.stallMs);

  const requests = Math.max(1, Math.round(ratePerSecond * seconds));
  const watch = progress.watch(`${ratePerSecond} requests a second`, () => {
    const { totalCount } = latencies.acknowledged;
    return `${totalCount} of ${requests} answered`;
  });
  try {
    const { run, loaded } = await measure({
      subject,
      redis: probeAppId === undefined ? undefined : redis,
      appId,
      before,
      requests,
      ...(options.stallMs === undefined ? {} : { stallMs: options.stallMs }),
      load: async () => {
        const probing = probeAppId === undefined ? undefined : startProbing(deployment, redis, probeAppId);
        const sent = await send(requests, true);
        const freshness = await probing?.stop();
        const probes = probeAppId === appId ? (freshness?.acknowledgedAfter.length ?? 0) : 0;
        return { ...sent, freshness, acknowledged: { events: requests + probes } };
      },
    });
    const { freshness } = loaded;
    return {
      ...run,
      ratePerSecond,
      latency: latencyFigures(latencies),
      ...(freshness === undefined
        ? {}
        : {
            queryable: {
              ms: spreadOfSorted(freshness.queryableAfter),
              probes: freshness.queryableAfter.length,
              questionsPerSecond: freshness.questions / loaded.seconds,
              questionMs: freshness.questionMs,
            },
          }),
    };
  } finally {
    watch.end();
  }
}

function spreadOfSorted(ascending: ArrayLike<number>): Spread {
  return {
    p50: percentile(ascending, 50),
    p99: percentile(ascending, 99),
    max: percentile(ascending, 100),
  };
}
