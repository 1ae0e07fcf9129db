// Ends the exports that a deletion overtakes: exports that were requested before it and name one of its users. Their requests hold
// that user's name, and the records are gone. An export that is requested later waits for the deletion instead.

import { streamRows } from '../clickhouse/answers.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { targetTable } from '../deletion/places.js';
import type { DeletionRequest } from '../deletion/request.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { transactionValues } from '../redis/transactions.js';
import { readExportsOf, type StoredExport } from './request.js';
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
  const exports = await readExportsOf(redis, new Set(deletions.map(({ account_id }) => account_id)));
  for (const deletion of deletions) {
    const earlier = exports.filter(
      ({ account_id, earlierDeletions }) =>
        account_id === deletion.account_id && !earlierDeletions.includes(deletion.deletion_request_id),
    );
    for (const ended of await findNaming(clickhouse, deletion.deletion_request_id, earlier)) {
      transactionValues(
        await redis
          .multi()
          .del(registryKeys.export(ended.user_export_id))
          .zrem(registryKeys.exports, `${ended.account_id} ${ended.user_export_id}`)
          .exec(),
      );
      await endReadingEverywhere(clickhouse, exportPrefix(ended.user_export_id));
    }
  }
}

/** The exports that name a user whom the deletion reaches, in any environment. */
async function findNaming(
  clickhouse: ClickHouseClient,
  deletionId: string,
  exports: readonly StoredExport[],
): Promise<ReadonlySet<StoredExport>> {
  const naming = new Map<string, StoredExport[]>();
  for (const each of exports) {
    for (const target of each.targets) naming.set(target, [...(naming.get(target) ?? []), each]);
  }
  const found = new Set<StoredExport>();
  if (naming.size === 0) return found;
  const rows = streamRows<{ identity: string; user_id: string | null }>(clickhouse, {
    query: `SELECT DISTINCT identity, toString(user_id) AS user_id FROM ${targetTable} WHERE request_id = {deletionId:String}`,
    query_params: { deletionId },
  });
  for await (const { identity, user_id: userId } of rows) {
    for (const each of naming.get(userId === null ? `i${identity}` : `u${userId}`) ?? []) found.add(each);
  }
  return found;
}
