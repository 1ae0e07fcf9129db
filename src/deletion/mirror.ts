// The second copy of deletion requests, in ClickHouse: written within seconds of a change, read when Redis was
// emptied. The targets of pending ones are copied by the first round that sees them.

import { createHash } from 'node:crypto';
import { readUnmirrored, type Unmirrored } from '../accounts/mirror.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { type CrashPoint, noCrash } from '../crash-point.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { targetTable } from './places.js';
import { type DeletionRequest, pendingMember } from './request.js';
import type { Target } from './targets.js';

/**
 * Copies the requests that changed since; settles with how many. When it settles, ClickHouse has every change that was
 * made before the call. May be called at once by several. Throws StateNotLoaded when Redis does not hold the
 * deployment.
 */
export async function mirrorDeletions(
  redis: Redis,
  clickhouse: ClickHouseClient,
  crash: CrashPoint = noCrash,
): Promise<number> {
  const { version, documents } = await readUnmirrored(
    redis,
    {
      version: registryKeys.deletionVersion,
      unmirrored: registryKeys.unmirroredDeletions,
      documents: registryKeys.deletions,
    },
    'raise',
  );
  if (documents.length === 0) return 0;
  await insertDocuments(clickhouse, documents, Number(version));
  crash('deletions_copied');
  await runScript(
    redis,
    scripts.mirroredDeletions,
    [registryKeys.unmirroredDeletions, registryKeys.deletions],
    documents.flatMap(({ key, document }) => [key, createHash('sha1').update(document).digest('hex')]),
  );
  return documents.length;
}

/** Copies requests that are about to be marked complete in Redis, so that nobody is told what could be forgotten. */
export async function mirrorCompleted(
  redis: Redis,
  clickhouse: ClickHouseClient,
  requests: readonly DeletionRequest[],
): Promise<void> {
  const version = await redis.incr(registryKeys.deletionVersion);
  const documents = requests.map((request) => ({
    key: request.deletion_request_id,
    document: JSON.stringify(request),
  }));
  await insertDocuments(clickhouse, documents, version);
}

async function insertDocuments(
  clickhouse: ClickHouseClient,
  documents: Unmirrored['documents'],
  version: number,
): Promise<void> {
  await clickhouse.insert({
    table: 'deletion_requests',
    values: documents.map(({ key, document }) => ({
      request_id: key,
      document,
      version: versionOf(document, version),
    })),
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
  });
}

/** A completed request stands over every pending form of it, whichever of two workers copied last. */
function versionOf(document: string, version: number): number {
  return (JSON.parse(document) as DeletionRequest).status === 'complete' ? completeOffset + version : version;
}

const completeOffset = 2 ** 50;

/** Loads the requests, and the targets of pending ones, into an emptied Redis. */
export async function restoreDeletions(redis: Redis, clickhouse: ClickHouseClient): Promise<number> {
  const result = await clickhouse.query({
    query: `SELECT argMax(deletion_requests.document, deletion_requests.version) AS document, toString(max(deletion_requests.version)) AS version
      FROM deletion_requests GROUP BY request_id`,
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ document: string; version: string }>();
  let highest = 0n;
  const pending: DeletionRequest[] = [];
  for (const { document, version } of rows) {
    const request = JSON.parse(document) as DeletionRequest;
    const counted = BigInt(version) % BigInt(completeOffset);
    if (counted > highest) highest = counted;
    await redis.hset(registryKeys.deletions, request.deletion_request_id, document);
    if (request.status === 'pending' && request.state !== 'ended') pending.push(request);
  }
  pending.sort(byFences);
  for (const [place, request] of pending.entries()) await restorePending(redis, clickhouse, request, place);
  await redis.set(registryKeys.deletionVersion, highest.toString());
  return rows.length;
}

/** The order of submission, as the fences tell it: clocks of API processes differ. */
function byFences(a: DeletionRequest, b: DeletionRequest): number {
  for (const [shard, fence] of Object.entries(a.fences)) {
    const other = b.fences[shard] ?? '0';
    if (fence !== other) return BigInt(fence) < BigInt(other) ? -1 : 1;
  }
  return a.submitted_at.localeCompare(b.submitted_at);
}

/** `place` is the request's among the pending ones, the oldest first. */
async function restorePending(
  redis: Redis,
  clickhouse: ClickHouseClient,
  request: DeletionRequest,
  place: number,
): Promise<void> {
  const requestId = request.deletion_request_id;
  const result = await clickhouse.query({
    query: `SELECT DISTINCT identity, toString(user_id) AS user_id FROM ${targetTable}
      WHERE request_id = {requestId:String} AND app_id = ''`,
    query_params: { requestId },
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ identity: string; user_id: string | null }>();
  const targets = rows.map(
    ({ identity, user_id: userId }): Target => (userId === null ? `i${identity}` : `u${userId}`),
  );
  await redis.set(registryKeys.deletionTargets(requestId), JSON.stringify(targets));
  // A worker looks once more whether all of them are there.
  const { targets_kept: _, ...unkept } = request;
  if (request.verified_at === undefined) {
    await redis.hset(registryKeys.deletions, requestId, JSON.stringify(unkept));
    await redis.sadd(registryKeys.unkeptDeletions, requestId);
  }
  await redis.zadd(registryKeys.pendingDeletions, place, pendingMember(request));
}
