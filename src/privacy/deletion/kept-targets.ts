// The targets of pending requests in ClickHouse, where they survive a loss of Redis and where users are resolved. This file copies them
// there, and removes those of verified requests and those that a stopped worker left behind.

import { inBatches, rotatedAtRandom } from '../../batches.js';
import { readRow, readRows } from '../../clickhouse/answers.js';
import { type ClickHouseClient, codeOfFault } from '../../clickhouse/client.js';
import { insertScratch } from '../../clickhouse/scratch.js';
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
import { columnsOfTarget } from './targets.js';
import { targetTable } from './user-tables.js';

/**
 * Copies the targets of all requests that were submitted since the last call, and records that. If neither Redis nor ClickHouse has a
 * request's targets, the request is lost and no longer pending. If ClickHouse refuses the targets of several requests, they are copied one
 * by one, and the refusal is thrown at the end, or after some refusals: ClickHouse may refuse everything. May be repeated.
 */
export async function keepTargets(redis: Redis, clickhouse: ClickHouseClient): Promise<void> {
  const ids = rotatedAtRandom(await redis.smembers(registryKeys.deletionsAwaitingTargetCopy));
  const refusals: unknown[] = [];
  for (const some of inBatches(ids, idsPerStatementMax)) {
    const groups = [...inBatches(await readDeletions(redis, some), idsPerStatementMax, shareOfMemory, 1)];
    for (let group = groups.pop(); group !== undefined; group = groups.pop()) {
      try {
        await keepGroup(redis, clickhouse, group);
      } catch (error) {
        if (codeOfFault(error) === 0) throw error;
        if (group.length > 1) groups.push(...group.map((request) => [request]));
        else refusals.push(error);
        if (refusals.length === refusalsMax) throw error;
      }
    }
  }
  if (refusals.length > 0) throw refusals[0];
}

const refusalsMax = 5;

/** The share that a list of targets takes of what a worker may have in memory at once. */
function shareOfMemory({ targets, weight }: DeletionRequest): number {
  return Math.max(targets / deletionRounds.targetsMax, weight / deletionRounds.copiedWeightMax);
}

async function keepGroup(
  redis: Redis,
  clickhouse: ClickHouseClient,
  requests: readonly DeletionRequest[],
): Promise<void> {
  const countKept = await countTargets(
    clickhouse,
    requests.map(({ deletion_request_id }) => deletion_request_id),
  );
  const kept: DeletionRequest[] = [];
  const rows: object[] = [];
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
    kept.push(request);
    for (const placed of missing) rows.push(rowOf(request, placed));
  }
  await insertScratch(clickhouse, targetTable, rows);
  await keepReferences(redis, clickhouse, kept);
  await Promise.all(kept.map((request) => noteKept(redis, request)));
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

async function noteKept(redis: Redis, request: DeletionRequest): Promise<void> {
  await runScript(
    redis,
    scripts.keepDeletionTargets,
    [
      registryKeys.deletions,
      registryKeys.pendingDeletions,
      registryKeys.uncopied,
      registryKeys.deletionsAwaitingTargetCopy,
    ],
    [request.deletion_request_id, pendingMember(request)],
  );
}

function rowOf({ deletion_request_id }: DeletionRequest, { target, place }: PlacedTarget) {
  return {
    request_id: deletion_request_id,
    // Empty for a named user; resolved users have their environment here.
    app_id: '',
    ...columnsOfTarget(target),
    place,
  };
}

/** Removes the targets of verified requests; settles when none is left. */
export async function purgeTargets(clickhouse: ClickHouseClient, ids: readonly string[]): Promise<void> {
  for (const some of inBatches(ids, idsPerStatementMax)) {
    const ofRequests = `request_id IN (${quoteIds(some)})`;
    await clickhouse.command({
      query: `ALTER TABLE ${targetTable} DELETE WHERE ${ofRequests}`,
      clickhouse_settings: { mutations_sync: '2' },
    });
    const left = await readRow<{ targets: number | string }>(clickhouse, {
      query: `SELECT count() AS targets FROM ${targetTable} WHERE ${ofRequests}`,
    });
    if (Number(left.targets) !== 0) throw new Error(`rows are left in ${targetTable}`);
  }
}

/**
 * Removes targets of requests that are not pending; a worker that was paused may have copied them too late. Calls `readPendingIds` after
 * listing the targets, so that those of a new request do not look stray. It must reject when it cannot know the pending requests.
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

/** The ids as a list for a statement. We generate all ids in one form; anything else is refused. */
export function quoteIds(ids: readonly string[]): string {
  for (const id of ids) if (!/^[0-9a-f-]{36}$/.test(id)) throw new Error('a request id is malformed');
  return ids.map((id) => `'${id}'`).join(', ');
}
