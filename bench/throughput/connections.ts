// How many events share a commit, and what does that save? Single events from few and from many connections, as fast as
// they are answered, in turns with uWebSockets.js alone, from a generator that leaves the CPU to the service.

import type { Context } from '../context.js';
import { deploymentSubject } from '../deployment/subject.js';
import { figure, median } from '../figures.js';
import { findWrk, type Wrk } from '../load/wrk.js';
import { packageVersion } from '../machine.js';
import type { Peers } from '../peers/start.js';
import type { Progress } from '../progress.js';
import type { Run, Subject } from './measure.js';
import { runThroughput } from './throughput.js';
import { sluiceWays, type Way } from './ways.js';

/** The generator, with its version. */
export type Generator = { readonly name: 'wrk' | 'autocannon'; readonly version: string };

export type ConnectionsLevel = {
  readonly connections: number;
  /** Whether the events carry idempotency keys. */
  readonly keys: boolean;
  readonly sluice: readonly Run[];
  /** uWebSockets.js alone, which got the same bodies in turns with these. */
  readonly uws: readonly Run[];
};

export type ConnectionsResult = {
  readonly generator: Generator;
  readonly levels: readonly ConnectionsLevel[];
};

/** The level that the target is about; it is measured in every round. */
export const targetLevel = { connections: 64, keys: true } as const;
const connectionCounts = [16, targetLevel.connections, 256];
const warmUpSeconds = { first: 2, later: 0.5 };

type Level = ConnectionsLevel & { readonly sluice: Run[]; readonly uws: Run[] };

/** Rejects if a request was not answered as expected, or if what is stored differs from what was acknowledged. */
export async function runConnections(context: Context, peers: Peers): Promise<ConnectionsResult> {
  const { deployment, options, progress } = context;
  const wrk = chooseWrk(progress, findWrk());
  const sluice = deploymentSubject(deployment);
  const uws = await peers.subject('uws');
  const counts = options.connections === undefined ? connectionCounts : [options.connections];
  const levels = counts.flatMap((connections) =>
    [false, true].map((keys): Level => ({ connections, keys, sluice: [], uws: [] })),
  );
  for (let round = 1; round <= options.repeats; round += 1) {
    for (const level of levels) {
      if (round > 1 && !isTarget(level)) continue;
      const way = wayOf(level);
      const [appId = ''] = await deployment.addEnvironments(1, way.limits);
      const run = (subject: Subject) => runOne(context, subject, way, appId, level, round, wrk);
      level.uws.push(await run(uws));
      level.sluice.push(await run(sluice));
      progress.say(describeLevel(level));
    }
  }
  const generator: Generator =
    wrk === undefined
      ? { name: 'autocannon', version: packageVersion('autocannon') }
      : { name: 'wrk', version: wrk.version };
  return { generator, levels };
}

/** wrk if it is installed; otherwise prints that it is not. */
export function chooseWrk({ say }: Pick<Progress, 'say'>, wrk: Wrk | undefined): Wrk | undefined {
  if (wrk === undefined) {
    say(
      'wrk is not installed (package wrk): autocannon sends instead, which takes as much CPU as the service',
    );
  }
  return wrk;
}

export function isTarget({ connections, keys }: Pick<ConnectionsLevel, 'connections' | 'keys'>): boolean {
  return connections === targetLevel.connections && keys === targetLevel.keys;
}

function wayOf({ keys }: ConnectionsLevel): Way {
  const name = keys ? 'single-keys' : 'single';
  const way = sluiceWays.find((candidate) => candidate.name === name);
  if (way === undefined) throw new Error(`there is no way ${name}`);
  return way;
}

function runOne(
  { options, progress }: Context,
  subject: Subject,
  way: Way,
  appId: string,
  { connections }: ConnectionsLevel,
  round: number,
  wrk: Wrk | undefined,
): Promise<Run> {
  return runThroughput({
    subject,
    way,
    appId,
    seconds: options.seconds,
    warmUpSeconds: round === 1 ? warmUpSeconds.first : warmUpSeconds.later,
    connections,
    threads: options.threads,
    wrk,
    progress,
  });
}

/** In µs. */
export type CommitFigures = { readonly events: number; readonly api: number; readonly redis: number };

/** The events per commit, and the CPU that a commit costs the API and Redis. Undefined if the run made no commit. */
export function commitFigures({ commits, cpu, records }: Run): CommitFigures | undefined {
  if (commits === undefined || commits.count === 0) return undefined;
  const ofCommit = (each: number) => (each * records) / commits.count;
  return {
    events: commits.records / commits.count,
    api: ofCommit(cpu.api ?? Number.NaN),
    redis: ofCommit(cpu.redis ?? Number.NaN),
  };
}

/** The cost of an event relative to the cost of its request at uWebSockets.js alone, by medians. */
export function timesOfUws({ sluice, uws }: ConnectionsLevel): number {
  const cost = (runs: readonly Run[]) => median(runs.flatMap(({ cpuSum }) => cpuSum ?? []));
  return cost(sluice) / cost(uws);
}

/** One line, about the last run. */
function describeLevel(level: ConnectionsLevel): string {
  const { connections, keys, sluice, uws } = level;
  const [run, floor] = [sluice.at(-1), uws.at(-1)];
  if (run === undefined || floor === undefined) throw new Error('there is no run yet');
  const commit = commitFigures(run);
  const parts = [
    `connections ${connections}${keys ? ' with keys' : ''}: ${figure(run.recordsPerSecond)} events/s`,
    `${figure(run.cpuSum)} µs an event, ${figure((run.cpuSum ?? Number.NaN) / (floor.cpuSum ?? Number.NaN))} times uWebSockets.js alone`,
    `${figure(commit?.events)} events a commit, which costs the API ${figure(commit?.api)} µs and Redis ${figure(commit?.redis)}`,
    `generator ${figure(run.generatorCpu)} µs`,
  ];
  if ((run.othersShare ?? 0) > 0.1) parts.push(`others use ${figure(100 * (run.othersShare ?? 0))} %: noisy`);
  return parts.join('; ');
}
