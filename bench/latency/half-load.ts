// At half load: how long do acknowledgements take, when can an event be queried, and does memory grow? One run of minutes,
// second by second, then floors at the same rate: a server that only answers, and one that first syncs the bytes to disk.

import { usedMemory } from '../backlog/redis-memory.js';
import type { Context } from '../context.js';
import type { ProcessName } from '../deployment/deployment.js';
import { deploymentSubject } from '../deployment/subject.js';
import { percentileMs, type Spread, spreadOf } from '../load/histogram.js';
import { countEndings, latenciesOf, type MergedSecond } from '../load/second.js';
import type { Peers } from '../peers/start.js';
import type { Subject } from '../throughput/measure.js';
import {
  describeRun,
  loadOf,
  runThroughput,
  type ThroughputOptions,
  type ThroughputRun,
} from '../throughput/throughput.js';
import { findHighestRate } from './curve.js';
import { type Freshness, startProbing } from './freshness.js';

type MemorySample = {
  readonly seconds: number;
  /** Resident bytes. */
  readonly memory: Readonly<Record<ProcessName, number>>;
  /** What Redis has allocated. */
  readonly redisUsed: number;
};

type HalfLoadRun = {
  readonly subject: string;
  readonly run: ThroughputRun;
  /** `at` is in seconds since the start, latencies since due in ms. */
  readonly seconds: readonly (Spread & { readonly at: number; readonly requests: number })[];
  /** The p99 since due of each minute, in ms: how much it varies. */
  readonly p99OfMinutes: readonly number[];
};

export type HalfLoadResult = {
  readonly minutes: number;
  readonly ratePerSecond: number;
  /** The service first, then with probes, then the floors. */
  readonly runs: readonly HalfLoadRun[];
  readonly queryable: Freshness;
  readonly samples: readonly MemorySample[];
};

const warmUpSeconds = 5;
const sampleEveryMs = 2_000;
/** Of the floors, and of the run with probes. */
const shortMinutesMax = 1;

/** Rejects if an event is not stored at the end. */
export async function runHalfLoad(context: Context, peers: Peers): Promise<HalfLoadResult> {
  const { deployment, redis, options, progress } = context;
  const { minutes } = options;
  const rate = options.rate ?? Math.round((await findHighestRate(context)) / 2);
  const [appId = '', besideProbes = '', probeAppId = ''] = await deployment.addEnvironments(3, 'default');
  const samples: MemorySample[] = [];
  let queryable: Freshness | undefined;
  const sampling = () => {
    const startedAt = performance.now();
    const sample = async () => {
      const redisUsed = await usedMemory(redis);
      const seconds = (performance.now() - startedAt) / 1000;
      samples.push({ seconds, memory: deployment.own.memory(), redisUsed });
    };
    const timer = setInterval(() => void sample().catch(() => undefined), sampleEveryMs);
    return async () => clearInterval(timer);
  };
  const probing = () => {
    const probes = startProbing(deployment, probeAppId);
    return async () => {
      queryable = await probes.stop();
    };
  };
  const load = { ...loadOf(context, 'single', rate), warmUpSeconds };
  const one = async (
    name: string,
    subject: Subject,
    minutesMax: number,
    more: Partial<ThroughputOptions> = {},
  ): Promise<HalfLoadRun> => {
    const seconds = Math.min(minutes, minutesMax) * 60;
    const appIds = [`half-load-${name}`];
    const { run, seconds: found } = await runThroughput({ ...load, subject, seconds, appIds, ...more });
    progress.say(`${name} at ${rate}/s: ${describeRun(run)}`);
    return { subject: name, run, seconds: figuresOf(found), p99OfMinutes: p99OfMinutes(found) };
  };
  const service = deploymentSubject(deployment);
  const runs = [await one('sluice', service, minutes, { redis, appIds: [appId], beside: sampling })];
  // In a minute of their own: a dozen questions a second to ClickHouse take CPU from everything else.
  const probed = { redis, appIds: [besideProbes], beside: probing };
  runs.push(await one('sluice-probed', service, shortMinutesMax, probed));
  for (const name of ['uws-synced', 'uws'] as const) {
    runs.push(await one(name, await peers.subject(name), shortMinutesMax));
  }
  if (queryable === undefined) throw new Error('there were no probes');
  return { minutes, ratePerSecond: rate, runs, queryable, samples };
}

function figuresOf(seconds: readonly MergedSecond[]): HalfLoadRun['seconds'] {
  const firstMs = seconds[0]?.atMs ?? 0;
  return seconds.map((second) => ({
    at: (second.atMs - firstMs) / 1000,
    requests: countEndings([second])['200'] ?? 0,
    ...spreadOf(latenciesOf([second])),
  }));
}

/** A rest of half a minute or more is a minute of its own; a shorter one belongs to the minute before. */
export function p99OfMinutes(seconds: readonly MergedSecond[]): number[] {
  const count = Math.max(1, Math.round(seconds.length / 60));
  return Array.from({ length: count }, (_, minute) => {
    const end = minute === count - 1 ? seconds.length : (minute + 1) * 60;
    return percentileMs(latenciesOf(seconds.slice(minute * 60, end)), 99);
  });
}

/** All samples of one process, as a series. */
export function memoryOf(samples: readonly MemorySample[], name: ProcessName) {
  return samples.map(({ seconds, memory }) => ({ atMs: seconds * 1000, value: memory[name] }));
}
