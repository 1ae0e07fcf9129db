// Runs schedules one after another on one deployment, which is started anew now and then, and after a round
// that broke a promise.

import { type Deployment, startDeployment } from './deployment.js';
import { type RoundResult, runRound } from './round.js';
import type { Schedule } from './schedule.js';

const roundsPerDeployment = 25;

export type Runner = {
  /** Runs one round; rejects only when no deployment starts. */
  run(schedule: Schedule): Promise<RoundResult>;
  close(): Promise<void>;
};

export function createRunner(): Runner {
  let deployment: Deployment | undefined;
  let rounds = 0;

  async function close(): Promise<void> {
    const old = deployment;
    deployment = undefined;
    await old?.stop();
  }

  return {
    run: async (schedule) => {
      if (rounds === roundsPerDeployment) await close();
      if (deployment === undefined) {
        deployment = await startDeployment();
        rounds = 0;
      }
      rounds += 1;
      const result = await runRound(deployment, schedule).catch((error: Error) => failed(schedule, error));
      if (result.broken.length > 0) await close();
      return result;
    },
    close,
  };
}

/** A round that could not be run or judged is not one in which promises were kept. */
function failed(schedule: Schedule, error: Error): RoundResult {
  const detail = `${error.stack ?? error.message}`.slice(0, 3_000);
  return {
    schedule,
    done: [],
    broken: [{ kind: 'not run', what: 'the round', detail }],
    acknowledged: 0,
    deletions: 0,
    unknown: 0,
    unknownStored: 0,
    tookMs: 0,
    phasesMs: {},
  };
}
