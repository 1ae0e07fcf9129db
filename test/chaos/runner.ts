// Runs schedules one after another on one deployment. Starts a new deployment now and then, for another disk, and after every round that
// broke a promise or set Redis's clock back.

import { type AnyDeployment, type Layout, startDeployment } from './deployment.js';
import { startDeploymentOfNodes } from './deployment-of-nodes.js';
import { startDeploymentOfThree } from './deployment-of-three.js';
import { keepOutputs } from './kept-outputs.js';
import { type RoundResult, runRound } from './round.js';
import type { Schedule } from './schedule.js';

const roundsPerDeployment = 25;

export type Runner = {
  /** Runs one round; rejects only if no deployment can be started. */
  run(schedule: Schedule): Promise<RoundResult>;
  close(): Promise<void>;
};

/** `cutsPower`: whether the power of ClickHouse's disk can be cut; only in the layout `one`. */
export function createRunner(layout: Layout = 'one', cutsPower = false): Runner {
  const start = ({ full }: Schedule) => {
    if (layout === 'three') return startDeploymentOfThree();
    if (layout === 'nodes' || layout === 'cluster') return startDeploymentOfNodes(layout);
    return startDeployment(full === undefined ? { cutsPower } : { full });
  };
  let deployment: AnyDeployment | undefined;
  let disk: string | undefined;
  let rounds = 0;

  async function close(): Promise<void> {
    const old = deployment;
    deployment = undefined;
    await old?.stop();
  }

  return {
    run: async (schedule) => {
      const its = JSON.stringify(schedule.full);
      if (rounds === roundsPerDeployment || its !== disk) await close();
      if (deployment === undefined) {
        // Another process may take a port between the check and the bind.
        deployment = await start(schedule).catch(() => start(schedule));
        disk = its;
        rounds = 0;
      }
      rounds += 1;
      const running = deployment;
      const result = await runRound(running, schedule).catch((error: Error) =>
        failed(schedule, error, running),
      );
      if (result.broken.length > 0) result.outputsIn = keepOutputs(running, schedule.seed);
      // After its clock stood still, the stamps of records would not show whether limits were kept.
      if (result.broken.length > 0 || result.clockStoodMs > 0) await close();
      return result;
    },
    close,
  };
}

/** A round that could not be run or checked counts as broken. */
function failed(schedule: Schedule, error: Error, { processes }: AnyDeployment): RoundResult {
  const outputs = [...processes.values()].map(({ name, ended, output }) => {
    const state = ended === undefined ? 'running' : `ended by ${ended.signal ?? `code ${ended.code}`}`;
    return `${name}, ${state}: ${output().slice(-1_000)}`;
  });
  const detail = `${(error.stack ?? error.message).slice(0, 2_000)}\n${outputs.join('\n')}`;
  return {
    schedule,
    done: [],
    broken: [{ kind: 'not run', what: 'the round', detail }],
    acknowledged: 0,
    deletions: 0,
    exports: 0,
    keptOut: 0,
    calls: 0,
    unknown: 0,
    unknownStored: 0,
    tookMs: 0,
    phasesMs: {},
    clockStoodMs: 0,
  };
}
