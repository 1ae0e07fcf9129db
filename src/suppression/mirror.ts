// The second copy of the suppressions, in ClickHouse: written before a submission is answered, and within a second of an
// anonymous user who was suppressed by an identification; read when Redis was emptied.

import { inScriptCalls, type Loading } from '../accounts/loading.js';
import { StateNotLoaded } from '../accounts/registry.js';
import { mirrorAudit } from '../audit/mirror.js';
import { readRow, readRows, streamRows } from '../clickhouse/answers.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { scripts } from '../redis/scripts.js';
import { transactionValues } from '../redis/transactions.js';

export const suppressedNamesTable = 'suppressed_names';

/**
 * Copies the changes that ClickHouse does not have. Several processes may call it at once. Throws StateNotLoaded when Redis
 * does not hold the deployment.
 */
export async function mirrorSuppressions(redis: Redis, clickhouse: ClickHouseClient): Promise<void> {
  const { suppressions, suppressionChanges } = registryKeys;
  const mirrored = (await redis.hget(suppressions, 'mirrored')) ?? '0';
  const [epoch, found] = transactionValues(
    await redis
      .multi()
      .get(registryKeys.epoch)
      .zrangebyscore(suppressionChanges, `(${mirrored}`, '+inf', 'LIMIT', 0, changesPerCopy)
      .exec(),
  );
  if (epoch === null) throw new StateNotLoaded();
  const changes = found as string[];
  if (changes.length === 0) return;
  await mirrorAudit(redis, clickhouse);
  await clickhouse.insert({
    table: suppressedNamesTable,
    values: changes.flatMap(rowsOf),
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
  });
  const last = String(changes.at(-1)).split(' ', 1)[0] as string;
  await redis.hset(suppressions, 'mirrored', last);
  if (changes.length === changesPerCopy) await mirrorSuppressions(redis, clickhouse);
}

const changesPerCopy = 50;

function rowsOf(change: string): object[] {
  const [head = '', added = '', removed = ''] = change.split('\n');
  const [version = '', account_id = ''] = head.split(' ');
  const rows = (line: string, suppressed: 0 | 1) =>
    line === ''
      ? []
      : line.split(' ').map((pair) => {
          const [name, root] = pair.split('|');
          return { account_id, name, root, version, suppressed };
        });
  return [...rows(added, 1), ...rows(removed, 0)];
}

/** Loads the suppressions into an emptied Redis; settles with their version, which is above every one that was known before. */
export async function restoreSuppressions(clickhouse: ClickHouseClient, loading: Loading): Promise<string> {
  const version = await versionAfter(clickhouse);
  if (version === '0') return version;
  const accounts = await readAccounts(clickhouse);
  for (const { account_id: accountId, users } of accounts) {
    const keys = [
      registryKeys.suppressions,
      registryKeys.suppressedNames(accountId),
      registryKeys.suppressedBy(accountId, ''),
    ];
    await loading.write(scripts.loadSuppressions, keys, [accountId, 'first', users]);
    const entries = readNames(clickhouse, accountId);
    for await (const call of inScriptCalls(entries, ([name, value]) => name.length + value.length))
      await loading.write(scripts.loadSuppressions, keys, [accountId, 'more', users, ...call.flat()]);
  }
  // Last: a process that reads half of the names finds no version, or an older one, and reads again.
  await loading.write(scripts.endLoadSuppressions, [registryKeys.suppressions], [version]);
  return version;
}

async function versionAfter(clickhouse: ClickHouseClient): Promise<string> {
  const row = await readRow<{ version: string }>(clickhouse, {
    query: `SELECT toString(max(version)) AS version FROM ${suppressedNamesTable}`,
  });
  const last = Number(row.version);
  // The last ones may have been lost. Versions are times in microseconds.
  return last === 0 ? '0' : String(Math.max(last + 1, Date.now() * 1000));
}

const latest = `SELECT account_id, name, root, argMax(suppressed, version) AS is_suppressed, max(version) AS since
  FROM ${suppressedNamesTable}`;

/** All accounts that ever had a suppressed user, with how many they have. */
async function readAccounts(clickhouse: ClickHouseClient) {
  return readRows<{ account_id: string; users: string }>(clickhouse, {
    query: `SELECT account_id, toString(countIf(root = '-' AND is_suppressed)) AS users
      FROM (${latest} GROUP BY account_id, name, root) GROUP BY account_id`,
  });
}

/** The suppressed names of an account, each with its value in Redis. */
async function* readNames(
  clickhouse: ClickHouseClient,
  accountId: string,
): AsyncGenerator<readonly [name: string, value: string]> {
  const rows = streamRows<{ name: string; since: string; roots: string[] }>(clickhouse, {
    query: `SELECT name, toString(min(since)) AS since, groupArray(root) AS roots
      FROM (${latest} WHERE account_id = {accountId:String} GROUP BY account_id, name, root)
      WHERE is_suppressed GROUP BY name`,
    query_params: { accountId },
  });
  for await (const { name, since, roots } of rows) yield [name, [since, ...roots].join(' ')];
}
