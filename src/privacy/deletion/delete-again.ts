// Repeats deletions on older data: on a restored backup that cannot be queried yet, or on a server that was set back and is being queried.
// It finds the users by their hashes among all users of that data. The rest is a deletion round on that data, with the same keys, fences
// and counts: so it touches no other rows, and none above a fence.

import { randomBytes } from 'node:crypto';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { indexKeysOf } from '../../clickhouse/key-index.js';
import { eraseMasked } from '../../clickhouse/masks.js';
import { deleteRows } from '../../clickhouse/mutate.js';
import { createScratch, fillScratch, insertScratch, scratchName } from '../../clickhouse/scratch.js';
import { recordTaken } from '../../clickhouse/taken-records.js';
import type { Redis } from '../../redis/client.js';
import type { Environment } from '../../registry/documents.js';
import { hashOfUser, withHashKey } from './deleted-users.js';
import type { DeletionRequest } from './request.js';
import { accountOf, countLeft, fillKeys, inEnvironments, mutationPredicate } from './round-keys.js';
import { removalOf } from './round-rows.js';
import {
  createRoundTables,
  dropMutating,
  namePrefix,
  type RoundTables,
  recordSizes,
} from './round-tables.js';
import { userTables } from './user-tables.js';

export type DeletedRequest = {
  readonly request: DeletionRequest;
  /** The hashes of its users, in hexadecimal digits. */
  readonly hashes: readonly string[];
};

export type DeleteAgainOptions = {
  readonly redis: Redis;
  /** Connected to the restored database, or to the server that was set back. */
  readonly clickhouse: ClickHouseClient;
  readonly shards: number;
  readonly environments: readonly Environment[];
};

/** Settles with the number of deleted rows once none is left. May be repeated. */
export async function deleteAgain(
  { redis, clickhouse, shards, environments }: DeleteAgainOptions,
  deleted: readonly DeletedRequest[],
): Promise<number> {
  await dropMutating(clickhouse, namePrefix);
  // Requests that were hidden when the backup was made have masked rows, whose users would not be found below.
  await eraseMasked(clickhouse, userTables);
  if (deleted.length === 0) return 0;
  const tables = await createRoundTables(
    clickhouse,
    randomBytes(6).toString('hex'),
    shards,
    deleted.map(({ request }) => ({ ...request, resolved: true })),
    environments,
  );
  await findByHash(redis, clickhouse, tables, deleted);
  await fillKeys(clickhouse, tables, '1');
  const fences = deleted.flatMap(({ request }) => Object.values(request.fences));
  let rows = 0;
  for (const table of userTables) {
    const left = await countLeft(clickhouse, tables, table);
    if (left.size === 0) continue;
    const predicate = mutationPredicate(tables, [...left.keys()], fences);
    const removal = await removalOf(clickhouse, tables, table, predicate);
    const { from, condition: noted } = removal.noted;
    // The key index is older than these deletions, so it may lack the keys of these rows.
    await indexKeysOf(clickhouse, table, noted, from);
    await recordTaken(clickhouse, table, noted, 'deleted', from);
    await deleteRows(clickhouse, table, removal);
    if ((await countLeft(clickhouse, tables, table)).size > 0) throw new Error(`rows are left in ${table}`);
    rows += [...left.values()].reduce((sum, count) => sum + count, 0);
  }
  await dropMutating(clickhouse, namePrefix);
  return rows;
}

/** Adds the users of the older data whose hash one of the requests has. */
async function findByHash(
  redis: Redis,
  clickhouse: ClickHouseClient,
  tables: RoundTables,
  deleted: readonly DeletedRequest[],
): Promise<void> {
  const hashes = scratchName(clickhouse, `${namePrefix}${randomBytes(6).toString('hex')}_hashes`);
  await createScratch(clickhouse, hashes, 'account_id String, request UInt32, hash String');
  for (const [request, { request: document, hashes: values }] of deleted.entries()) {
    await insertScratch(
      clickhouse,
      hashes,
      values.map((hash) => ({ account_id: document.account_id, request, hash })),
    );
  }
  tables.sizes.set(
    hashes,
    deleted.reduce((sum, each) => sum + each.hashes.length, 0),
  );
  await withHashKey(redis, clickhouse, async (key) => {
    for (const table of userTables) {
      const users = (columns: string, condition: string) =>
        `SELECT DISTINCT account_id, arrayJoin(['', row_app_id]) AS app_id, ${columns} FROM (
          SELECT ${accountOf(tables)} AS account_id,
            app_id AS row_app_id, identity AS row_identity, user_id AS row_user_id
          FROM ${table} WHERE ${inEnvironments(tables)} AND ${condition})`;
      await fillScratch(
        clickhouse,
        tables.users,
        `SELECT h.request, u.app_id, u.identity, u.user_id, '' FROM (
            SELECT account_id, app_id, identity, user_id, lower(hex(${hashOfUser(key)})) AS hash FROM (
              ${users("row_identity AS identity, CAST(NULL, 'Nullable(UInt64)') AS user_id", "identity != ''")}
              UNION ALL ${users("'' AS identity, row_user_id AS user_id", 'user_id IS NOT NULL')})
          ) AS u INNER JOIN ${hashes} AS h ON u.account_id = h.account_id AND u.hash = h.hash`,
      );
    }
    await recordSizes(clickhouse, tables, [tables.users]);
  });
}
