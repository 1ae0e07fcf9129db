// The ways and what they are compared with, round after round, so that a slow minute of the machine affects all of them.
// A way that fails is not tried again; the others go on.

import type { Context } from '../context.js';
import { deploymentSubject } from '../deployment/subject.js';
import { describeFailure, messageOf } from '../failure.js';
import { figure } from '../figures.js';
import type { Peers } from '../peers/start.js';
import type { Results, WayRuns } from '../results.js';
import { floorSteps, type StepResult } from './floors.js';
import type { Subject } from './measure.js';
import { runThroughput, type ThroughputRun } from './throughput.js';
import { peerWays, sluiceWays, type Way } from './ways.js';

export type RoundsResult = Pick<Results, 'ways' | 'failures'>;

type Open = { -readonly [Key in keyof WayRuns]: WayRuns[Key] } & { runs: ThroughputRun[] };

const warmUpSeconds = { first: 2, later: 0.5 };

/** Runs the ways with the wanted names. A failed way is in the result. */
export async function runRounds(
  context: Context,
  peers: Peers | undefined,
  wanted: ReadonlySet<string>,
): Promise<RoundsResult> {
  const { options, progress } = context;
  const floors = floorSteps(context, peers);
  const steps = [
    ...[...sluiceWays, ...peerWays].map((way) => ({
      name: way.name,
      what: way.what,
      subject: way.subject as string,
      connections: options.connections ?? way.connections,
      once: way.once,
      appIds: () => appIdsOf(context, way),
      run: (appId: string, round: number) => runWay(context, peers, way, appId, round),
    })),
    ...floors.map((floor) => ({ ...floor, connections: undefined })),
  ].filter(({ name }) => wanted.has(name));
  // In turns, so that the two sides of a target are measured close together.
  steps.sort((a, b) => place(a.name) - place(b.name));
  const ways = new Map<string, Open>();
  const failures = new Map<string, string>();
  const appIds = new Map<string, string[]>();

  for (let round = 1; round <= options.repeats; round += 1) {
    for (const { name, what, subject, connections, once, appIds: makeAppIds, run } of steps) {
      if ((once && round > 1) || failures.has(name)) continue;
      try {
        const own = appIds.get(name) ?? (await makeAppIds());
        appIds.set(name, own);
        const way: Open = ways.get(name) ?? {
          name,
          what,
          subject,
          ...(connections === undefined ? {} : { connections }),
          runs: [],
        };
        ways.set(name, way);
        const result = await run(own[round - 1] ?? '', round, ways);
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
    ways: [...ways.values()].filter(({ runs }) => runs.length > 0),
    failures: [...failures].map(([scenario, message]) => ({ scenario, message })),
  };
}

const order = [
  'uws',
  'single',
  'redis-single',
  'single-keys',
  'bulk-500',
  'bulk-500-keys',
  'engine',
  'redis-bulk',
];

function place(name: string): number {
  const index = order.indexOf(name);
  return index === -1 ? order.length : index;
}

function appIdsOf({ deployment, options }: Context, way: Way): Promise<string[]> {
  const count = way.once ? 1 : options.repeats;
  if (way.subject === 'sluice') return deployment.addEnvironments(count, way.limits);
  // A peer accepts any app_id.
  return Promise.resolve(Array.from({ length: count }, (_, i) => `${way.name}-${i + 1}`));
}

async function runWay(
  { deployment, redis, options, progress }: Context,
  peers: Peers | undefined,
  way: Way,
  appId: string,
  round: number,
): Promise<StepResult> {
  const subject = await subjectOf(deployment, peers, way);
  const run = await runThroughput({
    subject,
    redis: way.subject === 'sluice' ? redis : undefined,
    way,
    appId,
    seconds: options.seconds,
    warmUpSeconds: round === 1 ? warmUpSeconds.first : warmUpSeconds.later,
    connections: options.connections ?? way.connections,
    threads: options.threads,
    rate: options.rate,
    progress,
  });
  // Elsewhere the environment also has the rows of other runs.
  const counts = deployment.own !== undefined && way.subject === 'sluice' && way.path === '/api/track';
  if (!counts) return { run };
  const [row] = await deployment.rows<{ per: number }>(
    `SELECT count() / uniqExact(segment) AS per FROM stored_events WHERE app_id = '${appId}'`,
  );
  return { run, rowsPerInsert: Math.round(row?.per ?? 0) };
}

function subjectOf(
  deployment: Context['deployment'],
  peers: Peers | undefined,
  { subject }: Way,
): Subject | Promise<Subject> {
  if (subject === 'sluice') return deploymentSubject(deployment);
  if (peers === undefined) throw new Error('peers run beside a deployment of the bench');
  return peers.subject(subject);
}

/** One line. */
export function describeRun(run: ThroughputRun): string {
  const parts = [`${figure(run.requestsPerSecond)} requests/s, ${figure(run.recordsPerSecond)} records/s`];
  if (run.cpuSum !== undefined) {
    const cpu = Object.entries(run.cpu).map(([name, used]) => `${name} ${figure(used)}`);
    parts.push(`µs a record: ${cpu.join(', ')}, sum ${figure(run.cpuSum)}`);
  }
  parts.push(`generator ${figure(run.generatorCpu)}`);
  if (run.limited !== undefined) parts.push(`${run.limited} limited, ${run.repeats} repeats`);
  if (run.latency !== undefined) {
    const { p50, p99, max } = run.latency.acknowledgedMs;
    parts.push(`acknowledged p50 ${figure(p50)}, p99 ${figure(p99)}, max ${figure(max)} ms`);
  }
  if ((run.othersShare ?? 0) > 0.1) parts.push(`others use ${figure(100 * (run.othersShare ?? 0))} %: noisy`);
  return parts.join('; ');
}
