// Runs the service's ways, the floors and the peers, round after round, so that a slow minute of the machine affects all of
// them. A way that fails is not retried; the others go on.

import type { Context } from '../context.js';
import { numberOf } from '../deployment/stored.js';
import { deploymentSubject } from '../deployment/subject.js';
import { describeFailure, messageOf } from '../failure.js';
import type { Peers } from '../peers/start.js';
import type { Results, WayRuns } from '../results.js';
import { floorSteps, type StepResult } from './floors.js';
import { describeRun, runThroughput, type ThroughputRun } from './throughput.js';
import { peerWays, sluiceWays, type Way } from './ways.js';

type Open = { -readonly [Key in keyof WayRuns]: WayRuns[Key] } & { runs: ThroughputRun[] };

const warmUpSeconds = { first: 2, later: 0.5 };

/** Runs the ways with the wanted names; failures are part of the result. */
export async function runRounds(
  context: Context,
  peers: Peers,
  wanted: ReadonlySet<string>,
): Promise<Pick<Results, 'ways' | 'failures'>> {
  const { options, progress } = context;
  const steps = [
    ...[...sluiceWays, ...peerWays].map((way) => ({
      ...way,
      connections: options.connections ?? way.connections,
      run: (round: number) => runWay(context, peers, way, round),
    })),
    ...floorSteps(context, peers).map((floor) => ({ ...floor, once: false, connections: undefined })),
  ].filter(({ name }) => wanted.has(name));
  steps.sort((a, b) => place(a.name) - place(b.name));
  const ways = new Map<string, Open>();
  const failures: { scenario: string; message: string }[] = [];

  for (let round = 1; round <= options.repeats; round += 1) {
    for (const { name, what, subject, connections, once, run } of steps) {
      if ((once && round > 1) || failures.some(({ scenario }) => scenario === name)) continue;
      try {
        const result = await run(round, ways);
        const way: Open = ways.get(name) ?? {
          name,
          what,
          subject,
          ...(connections && { connections }),
          runs: [],
        };
        ways.set(name, way);
        way.runs.push(result.run);
        if (result.rowsPerInsert !== undefined) way.rowsPerInsert = result.rowsPerInsert;
        progress.say(`${name} ${round}/${once ? 1 : options.repeats}: ${describeRun(result.run)}`);
      } catch (error) {
        failures.push({ scenario: name, message: messageOf(error) });
        progress.say(`${name} FAILED: ${describeFailure(error)}`);
      }
    }
  }
  return { ways: [...ways.values()], failures };
}

/** The two sides of a target run close together; all other ways follow. */
const order = [
  ...['uws', 'single', 'redis-single', 'single-keys', 'uws-64', 'single-keys-64'],
  ...['bulk-500', 'bulk-500-keys', 'engine', 'redis-bulk'],
];

function place(name: string): number {
  const index = order.indexOf(name);
  return index === -1 ? order.length : index;
}

async function runWay(context: Context, peers: Peers, way: Way, round: number): Promise<StepResult> {
  const { deployment, redis, options, progress, wrk } = context;
  const isOurs = way.subject === 'sluice';
  // A peer accepts any app_id.
  const appIds = isOurs ? await deployment.addEnvironments(1, way.limits) : [`${way.name}-${round}`];
  const { run } = await runThroughput({
    subject: way.subject === 'sluice' ? deploymentSubject(deployment) : await peers.subject(way.subject),
    redis: isOurs ? redis : undefined,
    way,
    appIds,
    seconds: options.seconds,
    warmUpSeconds: round === 1 ? warmUpSeconds.first : warmUpSeconds.later,
    connections: options.connections ?? way.connections,
    threads: options.threads,
    wrk: way.cheap && options.rate === undefined ? wrk : undefined,
    rate: options.rate,
    progress,
  });
  if (!isOurs || way.path !== '/api/track') return { run };
  const rows = `stored_events WHERE app_id = '${appIds[0]}'`;
  return { run, rowsPerInsert: Math.round(await numberOf(deployment, 'count() / uniqExact(segment)', rows)) };
}
