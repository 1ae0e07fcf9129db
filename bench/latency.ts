// Latencies under a fixed rate: of the acknowledgement, and from it until the event can be queried.

import type { Context } from './context.js';
import { singleBodies } from './events.js';
import { percentile } from './figures.js';
import { startProbing } from './freshness.js';
import { measure, type Run } from './measure.js';
import { sendOpenLoop } from './open-loop.js';
import { untilStored } from './stored.js';

/** In ms. */
export type Spread = { readonly p50: number; readonly p99: number; readonly max: number };

export type LatencyRun = Run & {
  readonly ratePerSecond: number;
  readonly acknowledgedSinceDueMs: Spread;
  readonly acknowledgedSinceSentMs: Spread;
  readonly queryableMs: Spread;
  readonly probes: number;
  /** How often ClickHouse was asked for probes, and how long an answer took. */
  readonly questionsPerSecond: number;
  readonly questionMs: number;
};

const connections = 128;
const bodyCount = 200_000;

/** One event a request at `rate` a second, after a second of warm-up at the same rate. */
export async function runLatency(context: Context, rate: number, round: number): Promise<LatencyRun> {
  const { deployment, redis, acknowledged } = context;
  const appId = await deployment.addEnvironment(`latency ${round}`, 'default');
  const probeAppId = await deployment.addEnvironment(`probes ${round}`, 'default');
  const bodies = singleBodies(bodyCount, { appId, first: 0 });
  const send = (requests: number) =>
    sendOpenLoop({ url: deployment.url, bodies, ratePerSecond: rate, requests, connections });

  await send(rate);
  await untilStored(deployment, appId, rate);

  const events = Math.round(rate * context.seconds);
  const load = async () => {
    const probing = startProbing(deployment, redis, probeAppId);
    const sent = await send(events);
    return { ...sent, freshness: await probing.stop() };
  };
  const given = { deployment, redis, appId, eventsBefore: rate, requests: events, events, load };
  const { run, loaded } = await measure(given);
  const { freshness } = loaded;
  acknowledged.set(appId, rate + events);
  acknowledged.set(probeAppId, freshness.acknowledgedAfter.length);
  return {
    ...run,
    ratePerSecond: rate,
    acknowledgedSinceDueMs: spreadOf(loaded.latenciesSinceDue),
    acknowledgedSinceSentMs: spreadOf(loaded.latenciesSinceSent),
    queryableMs: spreadOf(freshness.queryableAfter),
    probes: freshness.queryableAfter.length,
    questionsPerSecond: freshness.questions / loaded.seconds,
    questionMs: freshness.questionMs,
  };
}

function spreadOf(ascending: ArrayLike<number>): Spread {
  return {
    p50: percentile(ascending, 50),
    p99: percentile(ascending, 99),
    max: percentile(ascending, 100),
  };
}
