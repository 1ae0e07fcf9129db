// A shard moves to another ClickHouse server while everything else happens. Half of the moves are killed at some step and then continued.
// A move that fails because of other faults is repeated during healing, where it must succeed.

import type { ShardView } from '../../src/admin/shards.js';
import { crashPoints } from '../../src/crash-point.js';
import { runProgram } from '../harness/sluice.js';
import { type AnyWorld, type Fault, hold } from './fault.js';

const triesMax = 3;

/** Repeats the moves that failed or were killed, until they end. */
export async function untilMovesEnd({
  sluice,
  failedMoves,
}: Pick<AnyWorld, 'sluice' | 'failedMoves'>): Promise<void> {
  for (const { shard, moving_to } of (await sluice.admin('shards', 'list')) as ShardView[]) {
    const to = moving_to ?? failedMoves.get(shard);
    if (to !== undefined) await sluice.admin('shards', 'move', String(shard), '--to', String(to));
  }
  failedMoves.clear();
}

export const moveOfShard: Fault<AnyWorld> = {
  name: 'shard moved',
  touches: ['shards'],
  run: async ({ sluice, shards, failedMoves }, random) => {
    const shard = random.int(0, shards - 1);
    const further = random.int(1, sluice.clickhouses.length - 1);
    const crashAt = random.int(0, 1) === 1 ? [random.pick(crashPoints.move)] : [];
    const listed = (await sluice.admin('shards', 'list')) as ShardView[];
    const its = listed.find((each) => each.shard === shard);
    if (its === undefined) throw new Error(`there is no shard ${shard}`);
    const to = its.moving_to ?? (its.server + further) % sluice.clickhouses.length;
    // A server may be away, so the command is repeated, as an operator would do.
    let failure: unknown;
    for (let tries = 0; tries < triesMax; tries += 1) {
      const [point] = crashAt.splice(0);
      const env = { ...sluice.env, ...(point === undefined ? {} : { CRASH_AT: point }) };
      try {
        await runProgram('src/admin/main.js', ['shards', 'move', String(shard), '--to', String(to)], env);
        failedMoves.delete(shard);
        return true;
      } catch (error) {
        failure = error;
      }
      await hold(random.int(100, 800));
    }
    failedMoves.set(shard, to);
    throw failure;
  },
};
