// From the users that requests name to the merged users whom they reach: in each environment, an identity with all
// user_ids that were identified by it, and a user_id with its identity and that one's others, as merged up to the
// request's fence.
//
// What an earlier request takes is not there for a later one, whether or not it is carried out yet: else whom the later
// one reaches would depend on when it was submitted. Between rounds the rows are gone. Within one, requests are
// resolved as if they were alone; those that used an identification that an earlier one takes are resolved again
// without it.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { storedTable } from '../clickhouse/tables.js';
import { targetTable } from './places.js';
import { fillKeys, inEnvironments, rowsReached } from './round-keys.js';
import { noteSizes, type RoundTables } from './round-tables.js';

/** A user's requests are resolved again at most so often in a round; what is left waits for the next one. */
const passesMax = 4;

const identifications = storedTable('user_identities');
const rowName = 'app_id, segment, commit_number, row_number';

/**
 * Resolves the requests that were not, and keeps whom they reach in the target table. `accounts` are those of the
 * round's requests, by number. Settles with the requests that have to wait for the next round. Fills the keys with the
 * users of all others. May be repeated until something was deleted.
 */
export async function resolveUsers(
  client: ClickHouseClient,
  tables: RoundTables,
  unresolved: readonly number[],
  accounts: readonly string[],
): Promise<ReadonlySet<number>> {
  let open = unresolved;
  for (let pass = 0; pass < passesMax && open.length > 0; pass++) {
    const isOpen = `request IN (${open.join(', ')})`;
    const earlier = sharesAccount(open, accounts, open.length < accounts.length);
    if (earlier) await fillCovered(client, tables, `NOT ${isOpen}`);
    await findCandidates(client, tables, isOpen, earlier);
    const again = sharesAccount(open, accounts, false)
      ? await findOvertaking(client, tables, isOpen, earlier)
      : new Set<number>();
    const isDone = again.size === 0 ? '1' : `NOT request IN (${[...again].join(', ')})`;
    await client.command({
      query: `INSERT INTO ${tables.users} SELECT DISTINCT * FROM ${tables.candidates} WHERE ${isDone}`,
    });
    await client.command({ query: `TRUNCATE TABLE ${tables.candidates}` });
    await noteSizes(client, tables, [tables.users, tables.candidates]);
    open = open.filter((request) => again.has(request));
  }
  const done = unresolved.filter((request) => !open.includes(request));
  if (done.length > 0) await keepResolved(client, tables, done);
  await fillKeys(
    client,
    tables,
    tables.users,
    open.length === 0 ? '1' : `NOT request IN (${open.join(', ')})`,
  );
  return new Set(open);
}

/** Whether two requests of one account are among these; or, with `others`, one of these and any other. */
function sharesAccount(open: readonly number[], accounts: readonly string[], others: boolean): boolean {
  const isOpen = new Set(open);
  const seen = new Set<string | undefined>();
  if (others) {
    for (const [request, account] of accounts.entries()) if (!isOpen.has(request)) seen.add(account);
    return open.some((request) => seen.has(accounts[request]));
  }
  for (const request of open) {
    if (seen.has(accounts[request])) return true;
    seen.add(accounts[request]);
  }
  return false;
}

/** Notes the identifications that requests which are resolved take, each with the first that does. */
async function fillCovered(client: ClickHouseClient, tables: RoundTables, isDone: string): Promise<void> {
  await fillKeys(client, tables, tables.users, isDone);
  await client.command({ query: `TRUNCATE TABLE ${tables.covered}` });
  await client.command({
    query: `INSERT INTO ${tables.covered} SELECT ${rowName}, min(request)
      FROM (${rowsReached(tables, identifications, rowName)}) GROUP BY ${rowName}`,
  });
  await noteSizes(client, tables, [tables.covered]);
}

/** Finds whom the open requests reach besides the users that they name. */
async function findCandidates(
  client: ClickHouseClient,
  tables: RoundTables,
  isOpen: string,
  earlier: boolean,
): Promise<void> {
  const merged = (wanted: string, on: string, columns: string) =>
    mergedUsers(tables, earlier, wanted, on, columns);
  const named = `SELECT u.request AS request, r.account_id AS account_id, r.fences AS fences, u.identity AS identity, u.user_id AS user_id
    FROM (SELECT * FROM ${tables.users} WHERE app_id = '' AND ${isOpen}) AS u
    INNER JOIN ${tables.requests} AS r ON u.request = r.request`;
  // The identities of named user_ids. Of a few users, found by the table's key: to merge all users first took 0.6 s
  // where 200,000 were identified.
  const ids = `SELECT request, account_id, fences, assumeNotNull(user_id) AS id FROM (${named}) WHERE user_id IS NOT NULL`;
  await client.command({
    query: `INSERT INTO ${tables.candidates} SELECT DISTINCT request, app_id, merged_identity, NULL
      FROM (${merged(ids, 'n.account_id = i.account_id AND n.id = i.user_id', '')})`,
  });
  // The user_ids of all these identities: whoever was ever identified by one, if that was the first.
  const identities = `SELECT request, '' AS app_id, account_id, fences, identity FROM (${named}) WHERE user_id IS NULL
    UNION ALL
    SELECT c.request, c.app_id, r.account_id, r.fences, c.identity FROM ${tables.candidates} AS c
    INNER JOIN ${tables.requests} AS r ON c.request = r.request`;
  const pairs = `SELECT DISTINCT w.request AS request, w.fences AS fences, i.app_id AS app_id, i.user_id AS id, w.identity AS identity
    FROM (${identities}) AS w
    INNER JOIN (
      SELECT DISTINCT app_id, joinGet('${tables.database}.${tables.environments}', 'account_id', app_id) AS account_id, user_id, identity
      FROM ${identifications} WHERE ${inEnvironments(tables)} AND identity IN (SELECT identity FROM (${identities}))
    ) AS i ON w.account_id = i.account_id AND w.identity = i.identity
    WHERE w.app_id = '' OR w.app_id = i.app_id`;
  await client.command({
    query: `INSERT INTO ${tables.candidates} SELECT DISTINCT request, app_id, '', user_id
      FROM (${merged(pairs, 'n.app_id = i.app_id AND n.id = i.user_id', 'identity')}) WHERE merged_identity = identity`,
  });
  await noteSizes(client, tables, [tables.candidates]);
}

/**
 * The standing identity of user_ids, each as its request sees it: the first one up to its fence that no earlier request
 * takes. `wanted` has request, fences and id; `columns` of it are kept.
 */
function mergedUsers(
  tables: RoundTables,
  earlier: boolean,
  wanted: string,
  on: string,
  columns: string,
): string {
  const kept = columns === '' ? '' : `, n.${columns} AS ${columns}`;
  const groups = `request, app_id, user_id${columns === '' ? '' : `, ${columns}`}`;
  const environment = (column: string) =>
    `joinGet('${tables.database}.${tables.environments}', '${column}', app_id) AS ${column}`;
  const covered = earlier
    ? `LEFT ANY JOIN (SELECT ${rowName}, first_request, 1 AS is_covered FROM ${tables.covered}) AS c
        ON i.app_id = c.app_id AND i.segment = c.segment AND i.commit_number = c.commit_number AND i.row_number = c.row_number`
    : '';
  const isThere = earlier ? 'AND (c.is_covered = 0 OR c.first_request >= n.request)' : '';
  return `SELECT n.request AS request, i.app_id AS app_id, i.user_id AS user_id${kept},
      argMin(i.identity, (i.segment, i.commit_number, i.row_number)) AS merged_identity
    FROM (${wanted}) AS n
    INNER JOIN (
      SELECT app_id, ${environment('account_id')}, ${environment('shard')}, user_id, identity, segment, commit_number, row_number
      FROM ${identifications} WHERE ${inEnvironments(tables)} AND user_id IN (SELECT id FROM (${wanted}))
    ) AS i ON ${on} ${covered}
    WHERE i.segment <= n.fences[i.shard + 1] ${isThere}
    GROUP BY ${groups}`;
}

/** Open requests that used an identification which an earlier open one takes. */
async function findOvertaking(
  client: ClickHouseClient,
  tables: RoundTables,
  isOpen: string,
  earlier: boolean,
): Promise<ReadonlySet<number>> {
  const users = `(SELECT * FROM ${tables.users} WHERE app_id = '' UNION ALL SELECT * FROM ${tables.candidates})`;
  await fillKeys(client, tables, users, isOpen);
  const reached = rowsReached(tables, identifications, rowName);
  const there = earlier
    ? `SELECT p.* FROM (${reached}) AS p LEFT ANY JOIN (SELECT ${rowName}, first_request, 1 AS is_covered FROM ${tables.covered}) AS c
        ON p.app_id = c.app_id AND p.segment = c.segment AND p.commit_number = c.commit_number AND p.row_number = c.row_number
        WHERE c.is_covered = 0 OR c.first_request >= p.request`
    : reached;
  const result = await client.query({
    query: `SELECT DISTINCT request FROM (
        SELECT request, min(request) OVER (PARTITION BY ${rowName}) AS first_request FROM (${there})
      ) WHERE request > first_request`,
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ request: number }>();
  return new Set(rows.map(({ request }) => Number(request)));
}

/** Keeps whom requests reach, so that a round that goes on after a crash need not find them again. */
async function keepResolved(
  client: ClickHouseClient,
  tables: RoundTables,
  requests: readonly number[],
): Promise<void> {
  await client.command({
    query: `INSERT INTO ${targetTable} (request_id, app_id, identity, user_id)
      SELECT r.request_id, u.app_id, u.identity, u.user_id
      FROM (SELECT * FROM ${tables.users} WHERE app_id != '' AND request IN (${requests.join(', ')})) AS u
      INNER JOIN ${tables.requests} AS r ON u.request = r.request`,
  });
}
