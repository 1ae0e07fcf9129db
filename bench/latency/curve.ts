// What does an event cost when the service is not busy? Sends single events at shares of the highest rate, in turns within
// each round, so that a slow minute of the machine affects all rates.

import type { Context } from '../context.js';
import { deploymentSubject } from '../deployment/subject.js';
import { describeRun, runThroughput, type ThroughputRun } from '../throughput/throughput.js';
import { wayNamed } from '../throughput/ways.js';

export type CurveLevel = {
  /** Of the highest rate, which the run at full load of the same round found. 1: as fast as events are answered. */
  readonly share: number;
  readonly runs: readonly ThroughputRun[];
};

/** Full load comes first: its rate decides the others. */
const shares = [1, 0.7, 0.5, 0.3, 0.1];
/** Runs take this many times as long as others: at a tenth of the rate there are few commits and inserts. */
const longer = 2;
const warmUpSeconds = 1;

export async function runCurve(context: Context): Promise<CurveLevel[]> {
  const { options, progress } = context;
  const levels = shares.map((share) => ({ share, runs: [] as ThroughputRun[] }));
  for (let round = 1; round <= options.repeats; round += 1) {
    let highest = 0;
    for (const { share, runs } of levels) {
      const rate = share === 1 ? undefined : Math.max(1, Math.round(highest * share));
      const run = await runSingle(context, rate, longer * options.seconds);
      if (share === 1) highest = run.requestsPerSecond;
      runs.push(run);
      progress.say(`curve ${100 * share} % ${round}/${options.repeats}: ${describeRun(run)}`);
    }
  }
  return levels.reverse();
}

/** The bench itself sends at every rate: another generator would leave a different share of CPU to the service. */
async function runSingle(
  { deployment, redis, options, progress }: Context,
  rate: number | undefined,
  seconds: number,
): Promise<ThroughputRun> {
  const way = wayNamed('single');
  const { threads, connections = way.connections } = options;
  const subject = deploymentSubject(deployment);
  const appIds = await deployment.addEnvironments(1, way.limits);
  const load = { subject, redis, way, appIds, seconds, warmUpSeconds, connections, threads, rate, progress };
  return (await runThroughput(load)).run;
}

/** The requests per second of single events, measured in one run. */
export async function findHighestRate(context: Context): Promise<number> {
  const { requestsPerSecond } = await runSingle(context, undefined, context.options.seconds);
  context.progress.say(`the highest rate is ${Math.round(requestsPerSecond)} requests per second`);
  return requestsPerSecond;
}
