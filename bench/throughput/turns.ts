// Runs measurements in turns, round after round, so that a slow minute of the machine affects all of them equally.

import type { Context } from '../context.js';
import type { Deployment } from '../deployment/deployment.js';
import { numberOf } from '../deployment/stored.js';
import type { Progress } from '../progress.js';
import type { Subject } from './measure.js';
import { describeRun, runWay, type ThroughputRun } from './throughput.js';

type Turn = {
  readonly name: string;
  readonly rounds: number;
  run(round: number): Promise<ThroughputRun>;
};

/** `of`: the value of what was varied, such as the number of stored events. */
export type Level = { readonly of: number; readonly runs: readonly ThroughputRun[] };

type TurnsOptions = {
  /** Whether to add a first round that does not count, since a process's first requests cost several times as much. */
  readonly warmUp?: boolean;
  /** Called with a failure; the turn is then left out of later rounds. Without this, the first failure ends everything. */
  readonly failed?: (name: string, error: unknown) => void;
};

export async function inTurns<T extends Turn>(
  turns: readonly T[],
  { say }: Pick<Progress, 'say'>,
  { warmUp = false, failed }: TurnsOptions = {},
) {
  const all = turns.map((turn) => ({ ...turn, runs: [] as ThroughputRun[] }));
  const left = new Set(all);
  for (let round = warmUp ? 0 : 1; [...left].some(({ rounds }) => round <= rounds); round += 1) {
    for (const turn of left) {
      if (round > turn.rounds) continue;
      try {
        const run = await turn.run(round);
        if (round > 0) turn.runs.push(run);
        say(`${turn.name} ${round}/${turn.rounds}: ${describeRun(run)}`);
      } catch (error) {
        if (failed === undefined) throw error;
        left.delete(turn);
        failed(turn.name, error);
      }
    }
  }
  return all;
}

/** Runs levels in turns, after a round of warm-up. */
export async function levelsInTurns(
  levels: readonly (Turn & Pick<Level, 'of'>)[],
  progress: Pick<Progress, 'say'>,
): Promise<Level[]> {
  return (await inTurns(levels, progress, { warmUp: true })).map(({ of, runs }) => ({ of, runs }));
}

export type WithEnvironments = Awaited<ReturnType<typeof withEnvironments>>[number];

/** The scenario's deployments, each with its value of what was varied and with new environments without limits. */
export async function withEnvironments(
  { deployments }: Context,
  values: readonly number[],
  environments: number,
) {
  const found: { of: number; deployment: Deployment; appIds: readonly string[] }[] = [];
  for (const [index, deployment] of deployments.entries())
    found.push({
      of: values[index] as number,
      deployment,
      appIds: await deployment.addEnvironments(environments, 'none'),
    });
  return found;
}

/** More rounds than usual, so that outliers do not decide. */
const moreRounds = 3;

/** Levels of these deployments at the same rate; without one, as fast as they answer. */
export function levelsAtRate(
  context: Context,
  found: readonly WithEnvironments[],
  way: string,
  rate: number | undefined,
  nameOf: (of: number) => string,
  rounds = moreRounds * context.options.repeats,
): Promise<Level[]> {
  const turns = found.map(({ of, deployment, appIds }) => ({
    of,
    name: nameOf(of),
    rounds,
    run: () => runWay({ ...context, deployment }, way, { rate, subject: wholeTable(deployment), appIds }),
  }));
  return levelsInTurns(turns, context.progress);
}

/** The deployment with the events of all environments counted together. Nothing else may send any. */
export function wholeTable(deployment: Deployment): Subject {
  const count = () => numberOf(deployment, 'count()', 'events');
  const ids = () => numberOf(deployment, 'uniqExact(event_id)', 'events');
  return { ...deployment, count, stored: async () => ({ events: await count(), ids: await ids() }) };
}
