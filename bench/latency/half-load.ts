// How long do acknowledgements take at half load, when can an event be queried, and does memory grow? One run of several minutes is recorded
// second by second. The floors follow at the same rate: a server that only answers, and one that first syncs the bytes to disk.

import type { Context } from '../context.js';
import type { ProcessName } from '../deployment/deployment.js';
import { percentileMs, spreadOf } from '../load/histogram.js';
import { latenciesOf, type MergedSecond } from '../load/second.js';
import { describeRun, loadOf, runThroughput, type ThroughputOptions } from '../throughput/throughput.js';
import { ofEnvironment } from '../throughput/ways.js';
import { rateOfHalfLoad } from './curve.js';
import { type Freshness, startProbing } from './freshness.js';

/** `memory`: resident bytes. */
type MemorySample = { readonly seconds: number; readonly memory: Readonly<Record<ProcessName, number>> };

type Measured = Pick<ThroughputOptions, 'subject' | 'appIds' | 'beside'>;

const warmUpSeconds = 5;
const sampleEveryMs = 2_000;
/** The length of the floors' runs, and of the run with probes. */
const shortMinutesMax = 1;

/** Rejects if an event is not stored at the end. */
export async function runHalfLoad(context: Context) {
  const { deployment, peers, options, progress } = context;
  const { minutes } = options;
  const ratePerSecond = await rateOfHalfLoad(context);
  const [appId = '', besideProbes = '', probeAppId = ''] = await deployment.addEnvironments(3, ofEnvironment);
  const samples: MemorySample[] = [];
  const sampling = () => {
    const startedAt = performance.now();
    const timer = setInterval(() => {
      samples.push({ seconds: (performance.now() - startedAt) / 1000, memory: deployment.memory() });
    }, sampleEveryMs);
    return async () => clearInterval(timer);
  };
  let queryable: Freshness | undefined;
  const probing = () => {
    const probes = startProbing(deployment, probeAppId);
    return async () => {
      queryable = await probes.stop();
    };
  };
  const load = { ...loadOf(context, 'single', ratePerSecond), warmUpSeconds };
  const one = async (subject: string, minutesMax: number, more: Measured) => {
    const seconds = Math.min(minutes, minutesMax) * 60;
    const { run, seconds: found } = await runThroughput({ ...load, seconds, ...more });
    progress.say(`${subject} at ${ratePerSecond}/s: ${describeRun(run)}`);
    return { subject, run, seconds: figuresOf(found), p99OfMinutes: p99OfMinutes(found) };
  };
  const runs = [await one('sluice', minutes, { subject: deployment, appIds: [appId], beside: sampling })];
  // In a separate minute: a dozen queries a second to ClickHouse take CPU from everything else.
  const probed = { subject: deployment, appIds: [besideProbes], beside: probing };
  runs.push(await one('sluice-probed', shortMinutesMax, probed));
  for (const name of ['uws-synced', 'uws'] as const) {
    const subject = await peers.subject(name);
    runs.push(await one(name, shortMinutesMax, { subject, appIds: [`half-load-${name}`] }));
  }
  if (queryable === undefined) throw new Error('there were no probes');
  return { minutes, ratePerSecond, runs, queryable, samples };
}

/** Figures of each second: `at` is in seconds since the start, latencies are from when requests were due, in ms. */
function figuresOf(seconds: readonly MergedSecond[]) {
  const firstMs = seconds[0]?.atMs ?? 0;
  return seconds.map((second) => ({
    at: (second.atMs - firstMs) / 1000,
    ...spreadOf(latenciesOf([second])),
  }));
}

/**
 * The p99 of each minute, from when requests were due, in ms, which shows how much it varies. A remainder of half a minute or more counts
 * as a minute; a shorter one belongs to the minute before.
 */
function p99OfMinutes(seconds: readonly MergedSecond[]): readonly number[] {
  const count = Math.max(1, Math.round(seconds.length / 60));
  return Array.from({ length: count }, (_, minute) => {
    const end = minute === count - 1 ? seconds.length : (minute + 1) * 60;
    return percentileMs(latenciesOf(seconds.slice(minute * 60, end)), 99);
  });
}

/** All memory samples of one process, as a series. */
export function memoryOf(samples: readonly MemorySample[], name: ProcessName) {
  return samples.map(({ seconds, memory }) => ({ atMs: seconds * 1000, value: memory[name] }));
}
