// Runs measurements in turns, round after round, so that a slow minute of the machine affects all of them equally.

import type { Progress } from '../progress.js';
import { describeRun, type ThroughputRun } from './throughput.js';

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
