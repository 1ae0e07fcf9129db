// Resolves the users that requests name to merged users, in each environment. An identity includes all user_ids that were identified by it.
// A user_id includes its identity and the other user_ids of that identity. Only merges up to the request's fence count.
//
// A request must not see what an earlier one deletes, whether or not that one has been carried out; otherwise its users would depend on
// when the rounds run. In a later round those rows are gone. Within a round, requests are resolved in passes: each pass resolves the
// earliest of the requests that may need the same identification, and the remaining ones then do not see what it deletes.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { readLong } from '../../clickhouse/long-statement.js';
import { emptyScratch, fillScratch } from '../../clickhouse/scratch.js';
import { storedTable } from '../../clickhouse/tables.js';
import { environmentOf, fillKeys, inEnvironments, rowsReached } from './round-keys.js';
import { type RoundTables, recordSizes } from './round-tables.js';
import { targetTable } from './user-tables.js';

/** The maximum of passes in a round; requests that are still unresolved after them wait for the next round. */
const passesMax = 4;

const identifications = storedTable('user_identities');
const rowName = 'app_id, segment, commit_number, row_number';

/**
 * Finds the users of the unresolved requests in the environments of these tables. `accounts`: the account of each request of the round, by
 * request number. `leftOut`: requests to ignore. Settles with the requests that have to wait for the next round. May be repeated until
 * something was deleted.
 */
export async function findReachedUsers(
  client: ClickHouseClient,
  tables: RoundTables,
  unresolved: readonly number[],
  accounts: readonly string[],
  leftOut: ReadonlySet<number>,
): Promise<ReadonlySet<number>> {
  let open = unresolved;
  for (let pass = 0; pass < passesMax && open.length > 0; pass++) {
    const afterOthers = followsOthers(open, accounts);
    if (afterOthers) await fillCovered(client, tables, isNoneOf([...open, ...leftOut]));
    const waiting = sharesAccount(open, accounts)
      ? await findWaiting(client, tables, open, afterOthers)
      : new Set<number>();
    const earliest = open.filter((request) => !waiting.has(request));
    await findUsers(client, tables, isOneOf(earliest), afterOthers);
    open = open.filter((request) => waiting.has(request));
  }
  return new Set(open);
}

export async function fillKeysWithout(
  client: ClickHouseClient,
  tables: RoundTables,
  leftOut: readonly number[],
): Promise<void> {
  await fillKeys(client, tables, isNoneOf(leftOut));
}

/** Resolves the only request of a preview, and fills the tables of keys with its users. Stores nothing. */
export async function resolveAlone(client: ClickHouseClient, tables: RoundTables): Promise<void> {
  await findUsers(client, tables, '1', false);
  await fillKeys(client, tables, '1');
}

function isOneOf(requests: readonly number[]): string {
  return `request IN (${requests.join(', ')})`;
}

function isNoneOf(requests: readonly number[]): string {
  return requests.length === 0 ? '1' : `NOT ${isOneOf(requests)}`;
}

/** Whether a resolved request of the round belongs to the same account as one of these. */
function followsOthers(open: readonly number[], accounts: readonly string[]): boolean {
  const isOpen = new Set(open);
  const others = new Set(accounts.filter((_, request) => !isOpen.has(request)));
  return open.some((request) => others.has(accounts[request] as string));
}

/** Whether two of these requests belong to one account. */
function sharesAccount(open: readonly number[], accounts: readonly string[]): boolean {
  return new Set(open.map((request) => accounts[request])).size < open.length;
}

/** Records the identifications that resolved requests delete, each with the first request that deletes it. */
async function fillCovered(client: ClickHouseClient, tables: RoundTables, isResolved: string): Promise<void> {
  await fillKeys(client, tables, isResolved);
  await emptyScratch(client, [tables.covered]);
  await fillScratch(
    client,
    tables.covered,
    `SELECT ${rowName}, min(request)
      FROM (${rowsReached(tables, identifications, rowName)}) GROUP BY ${rowName}`,
  );
  await recordSizes(client, tables, [tables.covered]);
}

/**
 * The open requests that may use an identification which an earlier open request may delete. A request uses and deletes only the
 * identifications of the users that it names, and of all users that were ever identified by an identity that it names or that one of those
 * users has; this holds whatever other requests delete. So links are followed no further, and memory is linear in the names and the users
 * found: each keeps only the first request that may delete it. Later requests that name the same user have to wait in any case.
 */
async function findWaiting(
  client: ClickHouseClient,
  tables: RoundTables,
  open: readonly number[],
  afterOthers: boolean,
): Promise<ReadonlySet<number>> {
  const isOpen = isOneOf(open);
  const names = namedBy(tables, isOpen);
  const ofNamedUsers = identificationsSeen(tables, afterOthers, names.userIds, 'user_id');
  const usable = (condition: string) => usableIdentifications(tables, isOpen, afterOthers, condition);
  await emptyScratch(client, [tables.asked, tables.linked]);
  await fillScratch(
    client,
    tables.asked,
    `SELECT n.request, i.app_id, n.identity FROM (${names.identities}) AS n INNER JOIN (
        SELECT app_id, account_id, shard, identity, min(segment) AS since
        FROM (${usable(`identity IN (SELECT identity FROM (${names.identities}))`)}) GROUP BY app_id, account_id, shard, identity
      ) AS i ON n.account_id = i.account_id AND n.identity = i.identity WHERE i.since <= n.fences[i.shard + 1]
      UNION ALL SELECT min(request), app_id, identity FROM (${ofNamedUsers}) GROUP BY app_id, identity`,
  );
  const askedFirst = `SELECT app_id, identity, min(request) AS first_request FROM ${tables.asked} GROUP BY app_id, identity`;
  const isAsked = `identity IN (SELECT identity FROM ${tables.asked})`;
  await fillScratch(
    client,
    tables.linked,
    `SELECT app_id, user_id, min(first_request) FROM (
        SELECT i.app_id AS app_id, i.user_id AS user_id, f.first_request AS first_request
        FROM (${usable(isAsked)}) AS i INNER JOIN (${askedFirst}) AS f ON i.app_id = f.app_id AND i.identity = f.identity
        UNION ALL SELECT app_id, user_id, request AS first_request FROM (${ofNamedUsers})
      ) GROUP BY app_id, user_id`,
  );
  await recordSizes(client, tables, [tables.asked, tables.linked]);
  const rows = await readLong<{ request: number }>(client, {
    query: `SELECT DISTINCT request FROM (
        SELECT a.request AS request, m.first_request AS first_request FROM ${tables.asked} AS a INNER JOIN (
          SELECT i.app_id AS app_id, i.identity AS identity, min(l.first_request) AS first_request
          FROM (${usable(isAsked)}) AS i INNER JOIN ${tables.linked} AS l ON i.app_id = l.app_id AND i.user_id = l.user_id
          GROUP BY app_id, identity
        ) AS m ON a.app_id = m.app_id AND a.identity = m.identity
        UNION ALL
        SELECT u.request AS request, l.first_request AS first_request FROM (${ofNamedUsers}) AS u
        INNER JOIN ${tables.linked} AS l ON u.app_id = l.app_id AND u.user_id = l.user_id
      ) WHERE first_request < request`,
  });
  return new Set(rows.map(({ request }) => Number(request)));
}

/** Finds the merged users of the requests, and adds them to the users that the requests name. */
async function findUsers(
  client: ClickHouseClient,
  tables: RoundTables,
  isResolving: string,
  afterOthers: boolean,
): Promise<void> {
  const seen = (wanted: string, by: 'user_id' | 'identity') =>
    identificationsSeen(tables, afterOthers, wanted, by);
  const names = namedBy(tables, isResolving);
  const firstIdentity = 'argMin(identity, (segment, commit_number, row_number))';
  await fillScratch(
    client,
    tables.users,
    `SELECT request, app_id, ${firstIdentity} AS merged_identity, NULL, ''
      FROM (${seen(names.userIds, 'user_id')}) GROUP BY request, app_id, user_id`,
  );
  // The user_ids of all these identities: those whose first identification was one of them.
  const merged = `SELECT u.request AS request, u.app_id AS app_id, r.account_id AS account_id, r.fences AS fences, 0 AS user_id, u.identity AS identity
    FROM (SELECT * FROM ${tables.users} WHERE app_id != '' AND user_id IS NULL AND ${isResolving}) AS u
    INNER JOIN ${tables.requests} AS r ON u.request = r.request`;
  const identities = `${names.identities} UNION ALL ${merged}`;
  const identified = `SELECT DISTINCT s.request AS request, s.app_id AS app_id, r.account_id AS account_id, r.fences AS fences, s.user_id AS user_id, s.identity AS identity
    FROM (${seen(identities, 'identity')}) AS s INNER JOIN ${tables.requests} AS r ON s.request = r.request`;
  await fillScratch(
    client,
    tables.users,
    `SELECT DISTINCT request, app_id, '', user_id, merged_identity FROM (
        SELECT request, app_id, user_id, wanted_identity, ${firstIdentity} AS merged_identity
        FROM (${seen(identified, 'user_id')}) GROUP BY request, app_id, user_id, wanted_identity
      ) WHERE merged_identity = wanted_identity`,
  );
  await recordSizes(client, tables, [tables.users]);
}

/** The users that requests name, to search for their identifications in all environments. */
function namedBy(tables: RoundTables, isAsking: string) {
  const named = (condition: string) =>
    `SELECT u.request AS request, '' AS app_id, r.account_id AS account_id, r.fences AS fences, assumeNotNull(u.user_id) AS user_id, u.identity AS identity
      FROM (SELECT * FROM ${tables.users} WHERE app_id = '' AND ${condition} AND ${isAsking}) AS u
      INNER JOIN ${tables.requests} AS r ON u.request = r.request`;
  return { userIds: named('user_id IS NOT NULL'), identities: named('user_id IS NULL') };
}

/**
 * The identifications that requests see of the wanted user_ids or identities: up to their fences, without those that an earlier request
 * deletes. `wanted` has the columns request, app_id (empty for the whole account), account_id, fences, user_id and identity. The table's
 * key finds these few users directly: merging all users first took 0.6 s with 200,000 identified users.
 */
function identificationsSeen(
  tables: RoundTables,
  afterOthers: boolean,
  wanted: string,
  by: 'user_id' | 'identity',
): string {
  const covered = afterOthers ? joinCovered(tables) : '';
  return `SELECT n.request AS request, n.identity AS wanted_identity, i.app_id AS app_id, i.user_id AS user_id,
      i.identity AS identity, i.segment AS segment, i.commit_number AS commit_number, i.row_number AS row_number
    FROM (${wanted}) AS n
    INNER JOIN (
      SELECT ${environmentOf(tables)}, user_id, identity, ${rowName}
      FROM ${identifications} WHERE ${inEnvironments(tables)} AND ${by} IN (SELECT ${by} FROM (${wanted}))
    ) AS i ON n.account_id = i.account_id AND n.${by} = i.${by} ${covered}
    WHERE (n.app_id = '' OR n.app_id = i.app_id) AND i.segment <= n.fences[i.shard + 1]
      ${afterOthers ? 'AND (c.is_covered = 0 OR c.first_request >= n.request)' : ''}`;
}

/** The identifications that meet a condition and that an open request may still see. */
function usableIdentifications(
  tables: RoundTables,
  isOpen: string,
  afterOthers: boolean,
  condition: string,
): string {
  const all = `SELECT ${environmentOf(tables)}, user_id, identity, ${rowName}
    FROM ${identifications} WHERE ${inEnvironments(tables)} AND ${condition}`;
  if (!afterOthers) return all;
  return `SELECT i.account_id AS account_id, i.shard AS shard, i.user_id AS user_id, i.identity AS identity,
      i.app_id AS app_id, i.segment AS segment, i.commit_number AS commit_number, i.row_number AS row_number
    FROM (${all}) AS i
    INNER JOIN (SELECT account_id, min(request) AS first_open FROM ${tables.requests} WHERE ${isOpen} GROUP BY account_id) AS o
      ON i.account_id = o.account_id
    ${joinCovered(tables)}
    WHERE c.is_covered = 0 OR c.first_request >= o.first_open`;
}

function joinCovered(tables: RoundTables): string {
  return `LEFT ANY JOIN (SELECT ${rowName}, first_request, 1 AS is_covered FROM ${tables.covered}) AS c
    ON i.app_id = c.app_id AND i.segment = c.segment AND i.commit_number = c.commit_number AND i.row_number = c.row_number`;
}

/** Stores the users of requests, so that a round after a crash need not find them again. */
export async function keepResolved(
  client: ClickHouseClient,
  tables: RoundTables,
  requests: readonly number[],
): Promise<void> {
  await fillScratch(
    client,
    targetTable,
    `(request_id, app_id, identity, user_id, merged_identity)
      SELECT DISTINCT r.request_id, u.app_id, u.identity, u.user_id, u.merged_identity
      FROM (SELECT * FROM ${tables.users} WHERE app_id != '' AND ${isOneOf(requests)}) AS u
      INNER JOIN ${tables.requests} AS r ON u.request = r.request`,
  );
}
