// The ways and what they are compared with, round after round, so that a slow minute of the machine affects all of them.
// A way that fails is not tried again; the others go on.

import type { Context } from '../context.js';
import { deploymentSubject } from '../deployment/subject.js';
import { describeFailure, messageOf } from '../failure.js';
import type { Peers } from '../peers/start.js';
import type { Results, WayRuns } from '../results.js';
import { floorSteps, type StepResult } from './floors.js';
import { describeRun, runThroughput, type ThroughputRun } from './throughput.js';
import { peerWays, sluiceWays, type Way } from './ways.js';

export type RoundsResult = Pick<Results, 'ways' | 'failures'>;

type Open = { -readonly [Key in keyof WayRuns]: WayRuns[Key] } & { runs: ThroughputRun[] };

const warmUpSeconds = { first: 2, later: 0.5 };

/** Runs the ways with the wanted names. A failed way is in the result. */
export async function runRounds(
  context: Context,
  peers: Peers,
  wanted: ReadonlySet<string>,
): Promise<RoundsResult> {
  const { options, progress } = context;
  const steps = [
    ...[...sluiceWays, ...peerWays].map((way) => ({
      ...way,
      connections: options.connections ?? way.connections,
      run: (round: number) => runWay(context, peers, way, round),
    })),
    ...floorSteps(context, peers).map((floor) => ({ ...floor, once: false, connections: undefined })),
  ].filter(({ name }) => wanted.has(name));
  // In turns, so that the two sides of a target are measured close together.
  steps.sort((a, b) => place(a.name) - place(b.name));
  const ways = new Map<string, Open>();
  const failures = new Map<string, string>();

  for (let round = 1; round <= options.repeats; round += 1) {
    for (const { name, what, subject, connections, once, run } of steps) {
      if ((once && round > 1) || failures.has(name)) continue;
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
        failures.set(name, messageOf(error));
        progress.say(`${name} FAILED: ${describeFailure(error)}`);
      }
    }
  }
  return {
    ways: [...ways.values()],
    failures: [...failures].map(([scenario, message]) => ({ scenario, message })),
  };
}

const order = [
  'uws',
  'single',
  'redis-single',
  'single-keys',
  'uws-64',
  'single-keys-64',
  'bulk-500',
  'bulk-500-keys',
  'engine',
  'redis-bulk',
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
  const [row] = await deployment.rows<{ per: number }>(
    `SELECT count() / uniqExact(segment) AS per FROM stored_events WHERE app_id = '${appIds[0]}'`,
  );
  return { run, rowsPerInsert: Math.round(row?.per ?? 0) };
}
