// Which deletions and exports of an account concern a user. No index exists for this question. It reads what requests keep for their own
// work: the users of pending deletions, the keyed hashes of completed ones (for 30 days), and the exports (for a day).

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { askAbout, namedUsers } from '../../clickhouse/named-users.js';
import { evidence, requestsOfUser } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import { evidenceHasher } from '../deletion/evidence.js';
import { quoteIds } from '../deletion/kept-targets.js';
import { listOfAccounts } from '../deletion/listed.js';
import type { DeletionRequest } from '../deletion/request.js';
import type { Target } from '../deletion/targets.js';
import { targetTable } from '../deletion/user-tables.js';
import { exportIdsOf, readExports } from '../export/request.js';

export type RequestsOfUser = {
  /** From newest to oldest. `rows`: how many rows of the user were found; absent while the deletion is pending. */
  readonly deletions: readonly (DeletionRequest & { readonly rows?: number })[];
  readonly exports: readonly string[];
  /** Whether there are older deletions that were not looked at. */
  readonly has_more: boolean;
};

/** The requests of an account that concern any of these names: they name it, or somebody with whom it is merged. */
export async function findRequestsOf(
  { redis, clickhouse, secret }: FindOptions,
  accountId: string,
  names: readonly Target[],
): Promise<RequestsOfUser> {
  const { requests, hasMore } = await readLatest(redis, accountId);
  const pending = requests.filter(({ status }) => status === 'pending');
  const complete = requests.filter(({ status }) => status === 'complete');
  const reaching = await findReaching(clickhouse, idsOf(pending), names);
  const rowsOf = await findCounted(clickhouse, secret, idsOf(complete), names);
  const wanted = new Set(names);
  const exports: string[] = [];
  for await (const each of readExports(redis, await exportIdsOf(redis, accountId)))
    if (each.targets.some((target) => wanted.has(target))) exports.push(each.user_export_id);
  const deletions = requests.flatMap((request) => {
    const rows = rowsOf.get(request.deletion_request_id);
    if (rows !== undefined) return [{ ...request, rows }];
    return reaching.has(request.deletion_request_id) ? [request] : [];
  });
  return { deletions, exports, has_more: hasMore };
}

type FindOptions = { readonly redis: Redis; readonly clickhouse: ClickHouseClient; readonly secret: string };

/** The latest requests: enough of them, or all whose hashes are still kept. */
async function readLatest(redis: Redis, accountId: string) {
  const sinceMs = Date.now() - evidence.keptMs;
  const requests: DeletionRequest[] = [];
  let after: string | undefined;
  do {
    const page = await listOfAccounts(redis, [accountId], { after });
    requests.push(...page.requests);
    after = page.next;
    const last = requests.at(-1);
    if (last !== undefined && last.status === 'complete' && Date.parse(last.completed_at ?? '') < sinceMs)
      after = undefined;
  } while (after !== undefined && requests.length < requestsOfUser.deletionsMax);
  return { requests, hasMore: after !== undefined };
}

function idsOf(requests: readonly DeletionRequest[]): readonly string[] {
  return requests.map(({ deletion_request_id }) => deletion_request_id);
}

/** Which of these pending deletions concern the user. ClickHouse has their users within a second of the submission. */
async function findReaching(
  clickhouse: ClickHouseClient,
  ids: readonly string[],
  names: readonly Target[],
): Promise<ReadonlySet<string>> {
  if (ids.length === 0) return new Set();
  const textsOf = (kind: string) => names.flatMap((name) => (name.startsWith(kind) ? name.slice(1) : []));
  const rows = await askAbout<{ request_id: string }>(
    clickhouse,
    { identities: textsOf('i'), userIds: textsOf('u') },
    `SELECT DISTINCT request_id FROM ${targetTable} AS t WHERE request_id IN (${quoteIds(ids)}) AND (
      (t.user_id IS NULL AND t.identity IN (SELECT identity FROM ${namedUsers} WHERE user_id IS NULL))
      OR t.user_id IN (SELECT assumeNotNull(user_id) FROM ${namedUsers} WHERE user_id IS NOT NULL))`,
  );
  return new Set(rows.map(({ request_id }) => request_id));
}

/** How many rows of the user each completed deletion found, by request. Has only the requests that named the user. */
async function findCounted(
  clickhouse: ClickHouseClient,
  secret: string,
  ids: readonly string[],
  names: readonly Target[],
): Promise<ReadonlyMap<string, number>> {
  if (ids.length === 0) return new Map();
  const asked = names.slice(0, requestsOfUser.namesMax);
  // Each request hashes differently, so a hash that is found belongs to one request.
  const hashes: string[] = [];
  for (const id of ids) {
    hashes.push(...asked.map(evidenceHasher(secret, id)));
    if (hashes.length % 1_000 < asked.length) await new Promise((resolve) => setImmediate(resolve));
  }
  const rows = await askAbout<{ request_id: string; rows: string }>(
    clickhouse,
    { identities: hashes, userIds: [] },
    `SELECT request_id, toString(sum(rows)) AS rows FROM deletion_evidence FINAL
      WHERE request_id IN (${quoteIds(ids)}) AND expires_at > now64(3)
        AND hash IN (SELECT identity FROM ${namedUsers}) GROUP BY request_id`,
  );
  return new Map(rows.map((row) => [row.request_id, Number(row.rows)]));
}
