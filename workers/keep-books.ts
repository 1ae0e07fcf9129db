// Writes the ledger to ClickHouse, and compares it with what is stored. Workers take turns.

import { checkIfDue } from '../src/insights/ledger/looks.js';
import { writeMinutes } from '../src/insights/ledger/write.js';
import { registryKeys } from '../src/redis/keys.js';
import { takeTurn } from '../src/redis/lease.js';
import { ledgerWrites } from '../src/tuning.js';
import type { WorkerContext } from './context.js';

/** Call it once a second. */
export async function keepBooks(context: WorkerContext): Promise<void> {
  if (await takeTurn(context.redis, registryKeys.ledgerTurn, ledgerWrites.turnMs))
    await writeMinutes(context);
  await checkIfDue(context);
}
