// The targets of pending requests in ClickHouse, where they survive a loss of Redis and where users are resolved. Copies them, and
// removes the targets of verified requests and those that a stopped worker left behind.

import { readRow, readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { insertScratch } from '../../clickhouse/scratch.js';
import { inPieces } from '../../pieces.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { deletionRounds } from '../../tuning.js';
import { keepReferences } from './references.js';
import {
  type DeletionRequest,
  markTargetsLost,
  type PlacedTarget,
  pendingMember,
  readDeletions,
  readDeletionTargets,
  targetsOfText,
} from './request.js';
import { targetTable } from './user-tables.js';

type TargetRow = {
  readonly request_id: string;
  /** Empty for a named user; a resolved user has its environment here. */
  readonly app_id: '';
  readonly identity: string;
  readonly user_id: string | null;
  readonly place: number;
};

/**
 * Copies the targets of all requests that were submitted since the last call, and records that. If neither Redis nor ClickHouse has a
 * request's targets, the request is lost and no longer pending. May be repeated.
 */
export async function keepTargets(redis: Redis, clickhouse: ClickHouseClient): Promise<void> {
  const ids = await redis.smembers(registryKeys.deletionsAwaitingTargetCopy);
  for (const some of inPieces(ids, idsPerStatementMax)) {
    const requests = await readDeletions(redis, some);
    for (const batch of inBatches(requests)) await keepBatch(redis, clickhouse, batch);
  }
}

/** Divides requests into batches whose lists fit into the worker's memory together. */
function* inBatches(requests: readonly DeletionRequest[]): Generator<DeletionRequest[]> {
  const { targetsMax, copiedWeightMax } = deletionRounds;
  let batch: DeletionRequest[] = [];
  let [targets, weight] = [0, 0];
  for (const request of requests) {
    const its = request.weight;
    if (batch.length > 0 && (targets + request.targets > targetsMax || weight + its > copiedWeightMax)) {
      yield batch;
      batch = [];
      [targets, weight] = [0, 0];
    }
    batch.push(request);
    targets += request.targets;
    weight += its;
  }
  if (batch.length > 0) yield batch;
}

async function keepBatch(
  redis: Redis,
  clickhouse: ClickHouseClient,
  requests: readonly DeletionRequest[],
): Promise<void> {
  const countKept = await countTargets(
    clickhouse,
    requests.map(({ deletion_request_id }) => deletion_request_id),
  );
  const batch: DeletionRequest[] = [];
  const rows: TargetRow[] = [];
  for (const request of requests) {
    // The targets of a verified request are no longer needed, and may be gone already.
    const isKept =
      request.verified_at !== undefined ||
      (countKept.get(request.deletion_request_id) ?? 0) >= request.targets;
    const text = isKept ? '' : await readDeletionTargets(redis, request.deletion_request_id);
    const missing = isKept ? [] : targetsOfText(request, text);
    if (missing === undefined) {
      await markTargetsLost(redis, request, text);
      continue;
    }
    batch.push(request);
    for (const placed of missing) rows.push(rowOf(request, placed));
  }
  await insertTargets(clickhouse, rows);
  await keepReferences(redis, clickhouse, batch);
  await Promise.all(batch.map((request) => noteKept(redis, request)));
}

/** How many distinct targets of each of these requests ClickHouse has. */
async function countTargets(
  clickhouse: ClickHouseClient,
  ids: readonly string[],
): Promise<Map<string, number>> {
  const rows = await readRows<{ request_id: string; targets: number }>(clickhouse, {
    query: `SELECT request_id, uniqExact(identity, ifNull(toString(user_id), '')) AS targets
      FROM ${targetTable} WHERE app_id = '' AND request_id IN (${quoteIds(ids)}) GROUP BY request_id`,
  });
  return new Map(rows.map((row) => [row.request_id, Number(row.targets)]));
}

async function insertTargets(clickhouse: ClickHouseClient, values: readonly TargetRow[]): Promise<void> {
  if (values.length === 0) return;
  await insertScratch(clickhouse, targetTable, values);
}

async function noteKept(redis: Redis, request: DeletionRequest): Promise<void> {
  await runScript(
    redis,
    scripts.keepDeletionTargets,
    [
      registryKeys.deletions,
      registryKeys.pendingDeletions,
      registryKeys.unmirroredDeletions,
      registryKeys.deletionsAwaitingTargetCopy,
    ],
    [request.deletion_request_id, pendingMember(request)],
  );
}

function rowOf({ deletion_request_id }: DeletionRequest, { target, place }: PlacedTarget): TargetRow {
  return {
    request_id: deletion_request_id,
    app_id: '',
    identity: target.startsWith('i') ? target.slice(1) : '',
    user_id: target.startsWith('u') ? target.slice(1) : null,
    place,
  };
}

/** Removes the targets of verified requests; settles when none is left. */
export async function purgeTargets(clickhouse: ClickHouseClient, ids: readonly string[]): Promise<void> {
  for (const some of inPieces(ids, idsPerStatementMax)) {
    const those = `request_id IN (${quoteIds(some)})`;
    await clickhouse.command({
      query: `ALTER TABLE ${targetTable} DELETE WHERE ${those}`,
      clickhouse_settings: { mutations_sync: '2' },
    });
    const left = await readRow<{ targets: number | string }>(clickhouse, {
      query: `SELECT count() AS targets FROM ${targetTable} WHERE ${those}`,
    });
    if (Number(left.targets) !== 0) throw new Error(`rows are left in ${targetTable}`);
  }
}

/**
 * Removes targets of requests that are not pending: a paused worker may have copied them too late. `readPendingIds` is called after the
 * targets are listed, so that a new request's targets do not look stray. It must reject when it cannot know.
 */
export async function purgeStrayTargets(
  clickhouse: ClickHouseClient,
  readPendingIds: () => Promise<ReadonlySet<string>>,
): Promise<void> {
  const rows = await readRows<{ request_id: string }>(clickhouse, {
    query: `SELECT DISTINCT request_id FROM ${targetTable}`,
  });
  const kept = rows.map((row) => row.request_id);
  if (kept.length === 0) return;
  const pendingIds = await readPendingIds();
  await purgeTargets(
    clickhouse,
    kept.filter((id) => !pendingIds.has(id)),
  );
}

/** This many ids fit the text of a statement (262,144 bytes). */
const idsPerStatementMax = 1_000;

/** All ids have one form, which we generate; nothing else gets into a statement. */
export function quoteIds(ids: readonly string[]): string {
  for (const id of ids) if (!/^[0-9a-f-]{36}$/.test(id)) throw new Error('a request id is malformed');
  return ids.map((id) => `'${id}'`).join(', ');
}
