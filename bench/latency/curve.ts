// What does an event cost when the service is not busy? Single events at parts of the highest rate, in turns within each
// round, so that a slow minute of the machine affects all of them.

import type { Context } from '../context.js';
import { deploymentSubject } from '../deployment/subject.js';
import { describeRun, runThroughput, type ThroughputRun } from '../throughput/throughput.js';
import { wayNamed } from '../throughput/ways.js';

export type CurveLevel = {
  /** Of the highest rate, which is that of the run before in the same round; 1: as fast as they are answered. */
  readonly share: number;
  readonly runs: readonly ThroughputRun[];
};

/** The full load comes first: its rate decides about the others. */
const shares = [1, 0.7, 0.5, 0.3, 0.1];
/** Longer than a run at full load: at a tenth of it, few commits and inserts make the figure. */
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

/** Single events from the bench's own generator, whatever the rate: another one would leave other CPU to the service. */
async function runSingle(
  { deployment, redis, options, progress }: Context,
  rate: number | undefined,
  seconds: number,
): Promise<ThroughputRun> {
  const way = wayNamed('single');
  const { run } = await runThroughput({
    subject: deploymentSubject(deployment),
    redis,
    way,
    appIds: await deployment.addEnvironments(1, way.limits),
    seconds,
    warmUpSeconds,
    connections: options.connections ?? way.connections,
    threads: options.threads,
    rate,
    progress,
  });
  return run;
}

/** The requests per second of single events, measured in one run. */
export async function findHighestRate(context: Context): Promise<number> {
  const { requestsPerSecond } = await runSingle(context, undefined, context.options.seconds);
  context.progress.say(`the highest rate is ${Math.round(requestsPerSecond)} requests per second`);
  return requestsPerSecond;
}
