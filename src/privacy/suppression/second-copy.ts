// The second copy of the suppressions, in ClickHouse: written before a submission is answered, and within a second after an identification
// suppresses an anonymous user. It is read after Redis was emptied.

import { inBatchesAsync } from '../../batches.js';
import { readRow, readRows, streamRows } from '../../clickhouse/answers.js';
import { type ClickHouseClient, insertRows } from '../../clickhouse/client.js';
import type { Redis } from '../../redis/client.js';
import { hashPieces } from '../../redis/hash-pieces.js';
import { registryKeys } from '../../redis/keys.js';
import { inScriptCalls, type Loading, versionAfterLoss } from '../../registry/loading.js';
import { suppressionChanges as sizes } from '../../tuning.js';

export const suppressedNamesTable = 'suppressed_names';

/** Loads the suppressions into an emptied Redis; settles with their version, which is higher than any before. */
export async function restoreSuppressions(clickhouse: ClickHouseClient, loading: Loading): Promise<string> {
  const version = await versionAfter(clickhouse, loading);
  if (version === '0') return version;
  const accounts = await readAccounts(clickhouse);
  for (const { account_id: accountId, users } of accounts) {
    const { suppressions, suppressedNames, suppressedBy } = registryKeys;
    const joinedField = `joined:${accountId}`;
    await loading.write([
      // Names that an interrupted load left may have been freed since.
      ['UNLINK', suppressedNames(accountId)],
      ['HDEL', suppressions, joinedField],
      ['HSET', suppressions, `users:${accountId}`, users],
    ]);
    const names = readNames(clickhouse, accountId);
    for await (const call of inScriptCalls(names, ({ name, value }) => name.length + value.length)) {
      const rooted = call.flatMap(({ name, roots }) => roots.map((root) => ({ name, root })));
      // Users who were joined do not count towards the account's limit (change-suppressions-8.lua).
      const joined = call.filter(({ roots }) => roots.every((root) => root.startsWith('+'))).length;
      await loading.write([
        ...call.map(({ name, value }) => ['HSET', suppressedNames(accountId), name, value]),
        ...rooted
          .filter(({ root }) => root !== '-')
          .map(({ name, root }) => ['SADD', suppressedBy(accountId, root), name]),
        ...(joined > 0 ? [['HINCRBY', suppressions, joinedField, joined]] : []),
      ]);
    }
  }
  const versions = ['version', 'changes_from'].flatMap((field) => [field, version]);
  // Written last: a process that reads only some of the names finds no version, or an older one, and reads again.
  await loading.write([['HSET', registryKeys.suppressions, ...versions]]);
  return version;
}

/**
 * Updates the copy in a ClickHouse that was set back from Redis. Changes during this are copied as usual. Reads some names at a time, since
 * an account may have millions. May be repeated.
 */
export async function copySuppressions(redis: Redis, clickhouse: ClickHouseClient): Promise<void> {
  const state = await redis.hgetall(registryKeys.suppressions);
  const version = state.version ?? '0';
  const here = Object.keys(state).flatMap((field) => (field.startsWith('users:') ? [field.slice(6)] : []));
  const there = (await readAccounts(clickhouse)).map(({ account_id }) => account_id);
  for (const account_id of new Set([...here, ...there])) {
    // First under their own versions; then, where ClickHouse wrongly has a later row, under the version of the latest change.
    await copy(clickhouse, account_id, readPairs(redis, account_id));
    await copy(clickhouse, account_id, corrections(redis, clickhouse, account_id, version));
  }
}

type Pair = { readonly name: string; readonly root: string };
type CopiedRow = Pair & { readonly version: string; readonly suppressed: 0 | 1 };

/** The names of an account in Redis, each with each of its roots. */
async function* readPairs(redis: Redis, accountId: string): AsyncGenerator<CopiedRow> {
  const key = registryKeys.suppressedNames(accountId);
  for await (const entries of hashPieces(redis, key, sizes.namesPerReadMax))
    for (const [name, value] of entries) {
      const [version = '0', ...roots] = value.split(' ');
      for (const root of roots) yield { name, root, version, suppressed: 1 };
    }
}

/** The pairs in which ClickHouse, which has Redis's pairs by now, still differs from Redis. */
async function* corrections(
  redis: Redis,
  clickhouse: ClickHouseClient,
  accountId: string,
  version: string,
): AsyncGenerator<CopiedRow> {
  const pairs = streamRows<Pair & { is_suppressed: 0 | 1 }>(clickhouse, {
    query: `SELECT name, root, is_suppressed
      FROM (${latest} WHERE account_id = {accountId:String} GROUP BY account_id, name, root)`,
    query_params: { accountId },
  });
  for await (const some of inBatchesAsync(pairs, sizes.namesPerReadMax)) {
    const values = await redis.hmget(
      registryKeys.suppressedNames(accountId),
      ...some.map(({ name }) => name),
    );
    for (const [at, { name, root, is_suppressed }] of some.entries()) {
      const suppressed = values[at]?.split(' ').slice(1).includes(root) ? 1 : 0;
      if (suppressed !== is_suppressed) yield { name, root, version, suppressed };
    }
  }
}

async function copy(
  clickhouse: ClickHouseClient,
  account_id: string,
  rows: AsyncIterable<CopiedRow>,
): Promise<void> {
  for await (const some of inBatchesAsync(rows, sizes.rowsPerInsertMax))
    await insertRows(
      clickhouse,
      suppressedNamesTable,
      some.map((row) => ({ account_id, ...row })),
    );
}

async function versionAfter(clickhouse: ClickHouseClient, loading: Loading): Promise<string> {
  const row = await readRow<{ version: string }>(clickhouse, {
    query: `SELECT toString(max(version)) AS version FROM ${suppressedNamesTable}`,
  });
  return row.version === '0' ? '0' : versionAfterLoss(loading, row.version);
}

const latest = `SELECT account_id, name, root, argMax(suppressed, version) AS is_suppressed, max(version) AS since
  FROM ${suppressedNamesTable}`;

/** All accounts that ever had a suppressed user, with how many users are suppressed now. */
async function readAccounts(clickhouse: ClickHouseClient) {
  return readRows<{ account_id: string; users: string }>(clickhouse, {
    query: `SELECT account_id, toString(countIf(root = '-' AND is_suppressed)) AS users
      FROM (${latest} GROUP BY account_id, name, root) GROUP BY account_id`,
  });
}

/** The suppressed names of an account, each with its roots and its value in Redis. */
async function* readNames(clickhouse: ClickHouseClient, accountId: string) {
  const rows = streamRows<{ name: string; since: string; roots: string[] }>(clickhouse, {
    query: `SELECT name, toString(min(since)) AS since, groupArray(root) AS roots
      FROM (${latest} WHERE account_id = {accountId:String} GROUP BY account_id, name, root)
      WHERE is_suppressed GROUP BY name`,
    query_params: { accountId },
  });
  for await (const { name, since, roots } of rows) yield { name, roots, value: [since, ...roots].join(' ') };
}
