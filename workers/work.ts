// What a worker does once the deployment is known, and how often: each shard's work, deletions, callbacks, second copies, retention
// and the ledger.

import { checkIfDue } from '../src/insights/ledger/schedule.js';
import { writeMinutes } from '../src/insights/ledger/write.js';
import { rewriteAppendOnlyFileIfWanted } from '../src/redis/deleted-data.js';
import { registryKeys } from '../src/redis/keys.js';
import { takeTurn } from '../src/redis/lease.js';
import { repeat } from '../src/repeat.js';
import { ledgerWrites } from '../src/tuning.js';
import { serveCallbacks } from './callback-queue.js';
import type { WorkerContext } from './context.js';
import { serveDeletions } from './deletion-queue.js';
import { deletionsCheckedEveryMs } from './queues.js';
import { expireRowsIfDue, retentionCheckedEveryMs } from './retention.js';
import { writeSecondCopies } from './second-copies.js';
import { serveShard } from './shard.js';

export function startWork(context: WorkerContext) {
  const { redis, shards, log } = context;
  const shardWork = Array.from({ length: shards }, (_, shard) => serveShard(context, shard));
  const callbackWork = serveCallbacks(context);
  const deletionWork = serveDeletions(context, callbackWork.addFirst);
  const queues = [...shardWork, deletionWork, callbackWork];

  /** Writes the ledger to ClickHouse, and compares it with what is stored. Workers take turns. */
  async function keepBooks(): Promise<void> {
    if (await takeTurn(redis, registryKeys.ledgerTurn, ledgerWrites.turnMs)) await writeMinutes(context);
    await checkIfDue(context);
  }

  // Each runs by itself: a ClickHouse or a master of Redis that does not answer must not delay work that needs only others.
  const every = (everyMs: number, what: string, work: () => Promise<unknown>) =>
    repeat({
      work,
      everyMs,
      failed: (error) => log.warn({ error }, `${what} failed`),
    });
  const repeated = [
    ...shardWork.flatMap(({ ageClaims, compressWaiting, indexKeysIfWanted }) => [
      every(1_000, 'the ageing of claims', ageClaims),
      every(1_000, 'the compression of waiting segments', compressWaiting),
      every(200, 'the index of keys', indexKeysIfWanted),
    ]),
    every(1_000, 'the rewriting of the append-only file', () => rewriteAppendOnlyFileIfWanted(redis, log)),
    every(1_000, 'the copying to ClickHouse', () => writeSecondCopies(context)),
    every(deletionsCheckedEveryMs, 'the check for pending deletions', deletionWork.addRoundIfPending),
    every(retentionCheckedEveryMs, 'the deletion of expired rows', () => expireRowsIfDue(context)),
    every(1_000, 'the ledger', keepBooks),
    every(2_000, 'the check for lost callbacks', callbackWork.addDue),
  ];

  return {
    /** Starts nothing new; settles when all running work has ended. */
    stop: async () => {
      await Promise.all([...repeated.map(({ stop }) => stop()), ...queues.map((queue) => queue.close())]);
    },
  };
}
