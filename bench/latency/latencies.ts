// The latencies of a session: at 30, 50 and 70 % of the highest rate of single events; half of the rate is measured five
// times. Each beside two floors at the same rate: a server that only answers, and one that answers once it has synced the
// bytes to disk.

import type { Context } from '../context.js';
import { deploymentSubject } from '../deployment/subject.js';
import { figure } from '../figures.js';
import type { Peers } from '../peers/start.js';
import type { LatencyRuns, WayRuns } from '../results.js';
import type { Subject } from '../throughput/measure.js';
import { runThroughput } from '../throughput/throughput.js';
import { sluiceWays } from '../throughput/ways.js';
import { type LatencyRun, runLatency } from './latency.js';

const subjects = ['sluice', 'uws', 'uws-synced'] as const;
/** How often each share is measured when the figures of targets are repeated. */
const shares = [
  { share: 0.3, runs: 1 },
  { share: 0.5, runs: 5 },
  { share: 0.7, runs: 1 },
] as const;
/** Longer than a run of throughput: probes are sent twenty times per second, and one percent of them decides. */
const longer = 2;
const warmUpSeconds = 2;

export async function runLatencies(
  context: Context,
  peers: Peers | undefined,
  ways: readonly WayRuns[],
): Promise<LatencyRuns[]> {
  const { options } = context;
  const plan =
    options.rate === undefined
      ? await planShares(context, ways)
      : [{ share: undefined, ratePerSecond: options.rate, runs: options.repeats }];
  const all: LatencyRuns[] = [];
  for (const { share, ratePerSecond, runs } of plan) {
    const found = new Map<string, LatencyRun[]>();
    for (let run = 1; run <= runs; run += 1) {
      for (const subject of peers === undefined ? (['sluice'] as const) : subjects) {
        const measured =
          subject === 'sluice'
            ? await runSluice(context, ratePerSecond)
            : await runFloor(context, await (peers as Peers).subject(subject), ratePerSecond, run);
        found.set(subject, [...(found.get(subject) ?? []), measured]);
        say(context, `latency of ${subject} at ${ratePerSecond}/s ${run}/${runs}`, measured);
      }
    }
    for (const [subject, measured] of found) all.push({ subject, share, ratePerSecond, runs: measured });
  }
  return all;
}

async function planShares(context: Context, ways: readonly WayRuns[]) {
  const measured = ways.find(({ name }) => name === 'single')?.runs.map((run) => run.requestsPerSecond);
  const highest = Math.max(...(measured ?? [await findHighestRate(context)]));
  return shares.map(({ share, runs }) => ({
    share,
    ratePerSecond: Math.max(1, Math.round(highest * share)),
    runs: context.options.repeats < 3 ? 1 : runs,
  }));
}

/** The requests per second of single events, measured in one run. */
export async function findHighestRate({ deployment, redis, options, progress }: Context): Promise<number> {
  const way = sluiceWays.find(({ name }) => name === 'single');
  if (way === undefined) throw new Error('there is no way of single events');
  const [appId = ''] = await deployment.addEnvironments(1, way.limits);
  const run = await runThroughput({
    subject: deploymentSubject(deployment),
    redis,
    way,
    appId,
    seconds: options.seconds,
    warmUpSeconds,
    connections: options.connections ?? way.connections,
    threads: options.threads,
    progress,
  });
  progress.say(`the highest rate is ${figure(run.requestsPerSecond)} requests per second`);
  return run.requestsPerSecond;
}

async function runSluice(context: Context, ratePerSecond: number): Promise<LatencyRun> {
  const { deployment, options } = context;
  const [appId = '', probeAppId = ''] = await deployment.addEnvironments(2, 'default');
  const subject = deploymentSubject(deployment);
  return runLatency(context, {
    subject,
    appId,
    probeAppId,
    ratePerSecond,
    seconds: longer * options.seconds,
  });
}

async function runFloor(
  context: Context,
  subject: Subject,
  ratePerSecond: number,
  run: number,
): Promise<LatencyRun> {
  const { seconds } = context.options;
  return runLatency(context, { subject, appId: `latency-${run}`, ratePerSecond, seconds });
}

function say({ progress }: Context, name: string, { latency, queryable, othersShare }: LatencyRun): void {
  const { p50, p99, max } = latency.acknowledgedMs;
  const parts = [`acknowledged p50 ${figure(p50)}, p99 ${figure(p99)}, max ${figure(max)} ms`];
  if (queryable !== undefined) {
    parts.push(`queryable p50 ${figure(queryable.ms.p50)}, p99 ${figure(queryable.ms.p99)} ms`);
  }
  if ((othersShare ?? 0) > 0.1) parts.push(`others use ${figure(100 * (othersShare ?? 0))} %: noisy`);
  progress.say(`${name}: ${parts.join('; ')}`);
}
