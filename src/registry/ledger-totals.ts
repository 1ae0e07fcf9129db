// What has become of the records of environments so far. Redis has the sums of the minutes of the ledger that ClickHouse has
// (booked-6.lua), and the last minutes themselves. A Redis that was emptied gets the sums back from ClickHouse (insights/ledger/write.ts).

import { tables } from '../contract/records.js';
import type { Redis } from '../redis/client.js';
import { shardKeys, shardOf } from '../redis/keys.js';

/** The records of all these environments by term, such as `suppressed` or `mended numeric_app_id`; 0 for terms that never occurred. */
export async function readTotals(
  redis: Redis,
  shards: number,
  appIds: readonly string[],
  terms: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const totals = new Map<string, number>(terms.map((term) => [term, 0]));
  const add = (term: string, records: number) => totals.set(term, (totals.get(term) ?? 0) + records);
  for (const appId of appIds) {
    const shard = shardOf(appId, shards);
    const fields = terms.flatMap((term) =>
      ['-', ...tables].map((kind) => ({ term, field: `${appId} ${kind} ${term}` })),
    );
    const minutes = await redis.smembers(shardKeys.ledgerMinutes(shard));
    // In one step: a minute that is being written moves from its hash to the sums.
    const transaction = redis.multi();
    for (const key of [
      shardKeys.ledgerTotals(shard),
      ...minutes.map((minute) => shardKeys.ledger(shard, minute)),
    ])
      transaction.hmget(key, ...fields.map(({ field }) => field));
    for (const [error, values] of (await transaction.exec()) ?? []) {
      if (error !== null) throw error;
      for (const [i, { term }] of fields.entries()) add(term, Number((values as (string | null)[])[i] ?? 0));
    }
  }
  return totals;
}
