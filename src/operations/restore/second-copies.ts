// Second copies of Redis's documents, in tables that were exchanged or set back.

import { inBatches } from '../../batches.js';
import { addRowsOf, readTableIds } from '../../clickhouse/staging.js';
import { keepReferences } from '../../privacy/deletion/references.js';
import { readDeletions } from '../../privacy/deletion/request.js';
import { copySuppressions } from '../../privacy/suppression/mirror.js';
import { registryKeys } from '../../redis/keys.js';
import { readMirror } from '../../registry/mirror.js';
import { copyChanges, kindsOfCopies, listUncopied } from '../../registry/outbox.js';
import { stateLoads } from '../../tuning.js';
import type { AdminContext } from '../context.js';
import { type Begun, confirm } from './confirm.js';
import { type Plan, textOf } from './plan.js';

/**
 * For a Redis that was emptied after the first table was exchanged. Some of its second copies are in the replaced tables, and those made
 * since then are in the restored ones. For each document the latest version counts.
 */
export async function gatherSecondCopies(restore: Begun, plan: Plan): Promise<void> {
  const { context, staging } = restore;
  const { redis, clickhouse, config } = context;
  const inUse = await readTableIds(clickhouse, config.clickhouseDatabase);
  const replaced = await readTableIds(clickhouse, staging);
  for (const table of secondCopies) {
    const isExchanged = inUse.get(table) === plan.tables[0]?.[table];
    if (isExchanged && replaced.has(table))
      await addRowsOf(clickhouse, table, staging, config.clickhouseDatabase);
  }
  await confirm(restore);
  // Before Redis is loaded: without this, deletion rounds would start once it is.
  await redis.set(registryKeys.restoringBackup, textOf(plan));
}

const secondCopies = ['registry', 'deletion_requests', 'deletion_targets'];

/**
 * Copies suppressions, documents, requests and their references to ClickHouse: its copies are old, or were lost with the server if the
 * backup is restored into a new one. Removes documents that only the older data has.
 */
export async function copyAll(context: AdminContext): Promise<void> {
  const { redis, clickhouse } = context;
  await copySuppressions(redis, clickhouse);
  const ofBackup = Object.keys((await readMirror(clickhouse)).documents);
  const documents = [...new Set([...ofBackup, ...(await redis.hkeys(registryKeys.documents))])];
  for (const some of inBatches(documents, stateLoads.documentsPerCallMax)) {
    await listUncopied(redis, kindsOfCopies.document, some);
    await copyChanges(redis, clickhouse, { kind: kindsOfCopies.document });
  }
  for (const some of inBatches(await redis.hkeys(registryKeys.deletions), stateLoads.documentsPerCallMax)) {
    await listUncopied(redis, kindsOfCopies.deletion, some);
    await copyChanges(redis, clickhouse, { kind: kindsOfCopies.deletion });
    await keepReferences(redis, clickhouse, await readDeletions(redis, some));
  }
}
