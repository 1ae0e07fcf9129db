// How long do acknowledgements take at half load, when is an event seen, and does anything grow? One run of minutes, second by
// second, beside floors at the same rate: a server that only answers, and one that answers once it has synced the bytes to disk.

import { usedMemory } from '../backlog/redis-memory.js';
import type { Context } from '../context.js';
import type { ProcessName } from '../deployment/deployment.js';
import { deploymentSubject } from '../deployment/subject.js';
import { figure } from '../figures.js';
import { percentileMs, type Spread, spreadOf, sumOfHistograms } from '../load/histogram.js';
import type { MergedSecond } from '../load/second.js';
import type { Peers } from '../peers/start.js';
import type { Subject } from '../throughput/measure.js';
import { runThroughput, type ThroughputRun } from '../throughput/throughput.js';
import { wayNamed } from '../throughput/ways.js';
import { findHighestRate } from './curve.js';
import { type Freshness, startProbing } from './freshness.js';

export type MemorySample = {
  readonly seconds: number;
  /** Resident bytes. */
  readonly memory: Readonly<Record<ProcessName, number>>;
  /** What Redis has allocated. */
  readonly redisUsed: number;
};

/** One second of a run: since the start; answers; latency since due, in ms. */
export type SecondFigures = Spread & { readonly at: number; readonly requests: number };

export type HalfLoadRun = {
  readonly subject: string;
  readonly run: ThroughputRun;
  readonly seconds: readonly SecondFigures[];
  /** The p99 since due of each minute, in ms: how much it varies. */
  readonly p99OfMinutes: readonly number[];
};

export type HalfLoadResult = {
  readonly minutes: number;
  readonly ratePerSecond: number;
  /** The service first, then the floors. */
  readonly runs: readonly HalfLoadRun[];
  readonly queryable: Freshness;
  readonly samples: readonly MemorySample[];
};

const warmUpSeconds = 5;
const sampleEveryMs = 2_000;
const floorMinutesMax = 1;

/** Rejects if an event is not stored at the end. */
export async function runHalfLoad(context: Context, peers: Peers): Promise<HalfLoadResult> {
  const { deployment, redis, options, progress } = context;
  const rate = options.rate ?? Math.round((await findHighestRate(context)) / 2);
  const [appId = '', probeAppId = ''] = await deployment.addEnvironments(2, 'default');
  const samples: MemorySample[] = [];
  let queryable: Freshness | undefined;
  const beside = () => {
    const startedAt = performance.now();
    const sample = async () => {
      const redisUsed = await usedMemory(redis);
      const seconds = (performance.now() - startedAt) / 1000;
      samples.push({ seconds, memory: deployment.own.memory(), redisUsed });
    };
    const timer = setInterval(() => void sample().catch(() => undefined), sampleEveryMs);
    const probing = startProbing(deployment, probeAppId);
    return async () => {
      clearInterval(timer);
      queryable = await probing.stop();
    };
  };
  const one = async (
    name: string,
    subject: Subject,
    minutes: number,
    id: string,
    besides?: typeof beside,
  ) => {
    const { run, seconds } = await runThroughput({
      subject,
      redis: name === 'sluice' ? redis : undefined,
      way: wayNamed('single'),
      appIds: [id],
      seconds: minutes * 60,
      warmUpSeconds,
      connections: 0,
      threads: options.threads,
      rate,
      progress,
      ...(besides && { beside: besides }),
    });
    const { p50, p99, max } = run.latency?.sinceDueMs ?? {
      p50: Number.NaN,
      p99: Number.NaN,
      max: Number.NaN,
    };
    const p99s = p99OfMinutes(seconds);
    progress.say(
      `${name} at ${rate}/s: since due p50 ${figure(p50)}, p99 ${figure(p99)} (by minutes ${p99s.map(figure).join(' ')}), max ${figure(max)} ms; limit: ${run.limit}`,
    );
    return { subject: name, run, seconds: figuresOf(seconds), p99OfMinutes: p99s };
  };
  const { minutes } = options;
  const runs = [await one('sluice', deploymentSubject(deployment), minutes, appId, beside)];
  for (const name of ['uws-synced', 'uws'] as const) {
    const subject = await peers.subject(name);
    runs.push(await one(name, subject, Math.min(minutes, floorMinutesMax), `half-load-${name}`));
  }
  if (queryable === undefined) throw new Error('there were no probes');
  return { minutes, ratePerSecond: rate, runs, queryable, samples };
}

function figuresOf(seconds: readonly MergedSecond[]): SecondFigures[] {
  const firstMs = seconds[0]?.atMs ?? 0;
  return seconds.map(({ atMs, latencies }) => ({
    at: (atMs - firstMs) / 1000,
    requests: latencies.totalCount,
    ...spreadOf(latencies),
  }));
}

/** What is left of a last minute counts from half a minute on. */
export function p99OfMinutes(seconds: readonly MergedSecond[]): number[] {
  const count = Math.max(1, Math.round(seconds.length / 60));
  return Array.from({ length: count }, (_, minute) => {
    const end = minute === count - 1 ? seconds.length : (minute + 1) * 60;
    return percentileMs(sumOfHistograms(seconds.slice(minute * 60, end)), 99);
  });
}

/** All samples of one process, as a series. */
export function memoryOf(samples: readonly MemorySample[], name: ProcessName) {
  return samples.map(({ seconds, memory }) => ({ atMs: seconds * 1000, value: memory[name] }));
}
