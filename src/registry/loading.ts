// The right to load a deployment's state into an emptied Redis. One process at a time has it, and each of its writes
// checks it. So the process notices if Redis is emptied meanwhile, or if another load has begun.

import { inBatchesAsync } from '../batches.js';
import { AdministrationError } from '../contract/errors.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { holdLease, newOwner } from '../redis/lease.js';
import { runScript, type Script, scripts } from '../redis/scripts.js';
import { stateLoads } from '../tuning.js';
import { untilTrue } from '../wait.js';
import { type Deployment, deploymentKey } from './documents.js';

export class LoadInterrupted extends AdministrationError {
  constructor() {
    super(
      'Redis was emptied while its state was loaded, or another restore took over: run "npm run admin -- state reload" again',
    );
  }
}

/** The words of a command of Redis. */
export type Command = readonly (string | number)[];

export type Loading = Omit<ReturnType<typeof hold>, 'end'>;

/**
 * Runs `work` with the right, after waiting at most this long for another load. Settles with `loaded`, without running it, when Redis is
 * already loaded.
 */
export async function withLoading<Result>(
  redis: Redis,
  waitMsMax: number,
  work: (loading: Loading) => Promise<Result>,
): Promise<Result | 'loaded'> {
  const nonce = newOwner();
  const keys = [registryKeys.epoch, registryKeys.loading, registryKeys.documents];
  const take = () => runScript(redis, scripts.beginLoad, keys, [nonce, stateLoads.holdMs, deploymentKey]);
  const taken = await untilTrue(take, { everyMs: 100, msMax: waitMsMax });
  if (taken === 0) throw new AdministrationError('another restore is running; try again when it has ended');
  if (taken === -1) return 'loaded';
  const { end, ...loading } = hold(redis, nonce, BigInt(taken as string));
  return work(loading).finally(end);
}

function hold(redis: Redis, nonce: string, beganUs: bigint) {
  const { isHeld, end } = holdLease(redis, registryKeys.loading, nonce, stateLoads);

  async function run(script: Script, keys: string[], args: (string | number)[]): Promise<unknown> {
    const guards = [registryKeys.epoch, registryKeys.loading];
    const reply = await runScript(redis, script, [...guards, ...keys], [nonce, ...args]);
    if (reply === null) throw new LoadInterrupted();
    return reply;
  }

  return {
    nonce,
    /** When it began, in microseconds of Redis's clock. */
    beganUs,
    /**
     * Carries out commands, whose keys are all the registry's, in one step, and only while this process has the right. Settles with the reply
     * to the last one. Throws LoadInterrupted when the right is lost.
     */
    write: (commands: readonly Command[]): Promise<unknown> => {
      const words = commands.flatMap((command) => [command.length, ...command]);
      return run(scripts.load, [], words);
    },
    /** Throws LoadInterrupted when the right is lost. */
    confirm: async (): Promise<void> => {
      if (!(await isHeld())) throw new LoadInterrupted();
    },
    /** The last step: from then on Redis belongs to the deployment. Throws LoadInterrupted if Redis has lost the deployment's document. */
    finish: async ({ epoch }: Deployment, how: 'created' | 'restored'): Promise<void> => {
      const { documents, rewriteWanted } = registryKeys;
      await run(
        scripts.endLoad,
        [documents, rewriteWanted],
        [epoch, deploymentKey, how === 'restored' ? how : ''],
      );
    },
    end,
  };
}

/**
 * A version higher than all versions before a loss. `known`: the highest one in the copy, which may lack the last changes. Versions follow
 * Redis's clock, so the lost ones are below it too, unless they ran ahead of it as the known one does: then some are skipped.
 */
export function versionAfterLoss({ beganUs }: Loading, known: string): string {
  return String(BigInt(known) < beganUs ? beganUs : BigInt(known) + stateLoads.lostVersionsMax);
}

export function inScriptCalls<Item>(
  items: Iterable<Item> | AsyncIterable<Item>,
  bytesOf: (item: Item) => number,
): AsyncGenerator<Item[]> {
  return inBatchesAsync(items, stateLoads.documentsPerCallMax, bytesOf, stateLoads.bytesPerCallMax);
}
