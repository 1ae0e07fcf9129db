// Ends the exports that a deletion overtakes: exports that were requested before it and name one of its users. Their requests hold
// that user's name, and the records are gone. An export that is requested later waits for the deletion instead.

import { hash } from 'node:crypto';
import { streamRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import type { DeletionRequest } from '../deletion/request.js';
import { targetTable } from '../deletion/user-tables.js';
import { exportIdsOf, readExports } from './request.js';
import { endReadingEverywhere, exportPrefix } from './tables.js';

/**
 * Ends the exports that these deletions overtake, with their downloads. To be called while ClickHouse has the users of the
 * deletions, resolved ones included. May be repeated.
 */
export async function endExportsOf(
  redis: Redis,
  clickhouse: ClickHouseClient,
  deletions: readonly DeletionRequest[],
): Promise<void> {
  const deletionIds = new Set(deletions.map(({ deletion_request_id }) => deletion_request_id));
  // One account at a time: its exports name 50,000 users at most.
  for (const accountId of new Set(deletions.map(({ account_id }) => account_id))) {
    const named = await readNamed(redis, await exportIdsOf(redis, accountId), deletionIds);
    for (const { account_id, deletion_request_id: deletionId } of deletions) {
      if (account_id !== accountId) continue;
      for (const exportId of await findNaming(clickhouse, deletionId, named)) {
        await runScript(
          redis,
          scripts.endExport,
          [
            registryKeys.exports,
            registryKeys.export(exportId),
            registryKeys.exportWeights,
            registryKeys.exportsByAccount,
          ],
          [`${accountId} ${exportId}`],
        );
        await endReadingEverywhere(clickhouse, exportPrefix(exportId));
      }
    }
  }
}

/** Whom exports name, as hashes, since names may be long, and which of the deletions come before each. */
type Named = {
  readonly exportsOf: ReadonlyMap<string, readonly string[]>;
  readonly earlier: ReadonlyMap<string, ReadonlySet<string>>;
};

async function readNamed(
  redis: Redis,
  ids: readonly string[],
  deletionIds: ReadonlySet<string>,
): Promise<Named> {
  const exportsOf = new Map<string, string[]>();
  const earlier = new Map<string, ReadonlySet<string>>();
  for await (const { user_export_id: id, targets, earlierDeletions } of readExports(redis, ids)) {
    earlier.set(id, new Set(earlierDeletions.filter((deletionId) => deletionIds.has(deletionId))));
    for (const target of targets) {
      const key = hashOf(target);
      const its = exportsOf.get(key);
      if (its === undefined) exportsOf.set(key, [id]);
      else its.push(id);
    }
  }
  return { exportsOf, earlier };
}

function hashOf(target: string): string {
  return hash('sha256', target, 'hex').slice(0, 32);
}

/** The exports before a deletion that name a user whom it reaches, in any environment. */
async function findNaming(
  clickhouse: ClickHouseClient,
  deletionId: string,
  { exportsOf, earlier }: Named,
): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  if (exportsOf.size === 0) return found;
  const rows = streamRows<{ identity: string; user_id: string | null }>(clickhouse, {
    query: `SELECT DISTINCT identity, toString(user_id) AS user_id FROM ${targetTable} WHERE request_id = {deletionId:String}`,
    query_params: { deletionId },
  });
  for await (const { identity, user_id: userId } of rows) {
    const naming = exportsOf.get(hashOf(userId === null ? `i${identity}` : `u${userId}`)) ?? [];
    for (const id of naming) if (earlier.get(id)?.has(deletionId) !== true) found.add(id);
  }
  return found;
}
