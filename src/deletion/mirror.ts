// The second copy of deletion requests, in ClickHouse: written within seconds of a change, read when Redis was
// emptied. The targets of pending ones are copied by the first round that sees them.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { type CrashPoint, noCrash } from '../crash-point.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { targetTable } from './places.js';
import { type DeletionRequest, pendingMember } from './request.js';
import type { Target } from './targets.js';

/** Copies the requests that changed since; settles with how many. May be called at once by several. */
export async function mirrorDeletions(
  redis: Redis,
  clickhouse: ClickHouseClient,
  crash: CrashPoint = noCrash,
): Promise<number> {
  const ids = await redis.smembers(registryKeys.unmirroredDeletions);
  if (ids.length === 0) return 0;
  const version = await redis.incr(registryKeys.deletionVersion);
  const documents = await redis.hmget(registryKeys.deletions, ...ids);
  await clickhouse.insert({
    table: 'deletion_requests',
    values: ids.flatMap((id, index) => {
      const document = documents[index];
      return document == null ? [] : [{ request_id: id, document, version: versionOf(document, version) }];
    }),
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
  });
  crash('deletions_copied');
  const now = await redis.hmget(registryKeys.deletions, ...ids);
  const unchanged = ids.filter((_, index) => now[index] === documents[index]);
  if (unchanged.length > 0) await redis.srem(registryKeys.unmirroredDeletions, ...unchanged);
  return ids.length;
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
  for (const { document, version } of rows) {
    const request = JSON.parse(document) as DeletionRequest;
    const counted = BigInt(version) % BigInt(completeOffset);
    if (counted > highest) highest = counted;
    await redis.hset(registryKeys.deletions, request.deletion_request_id, document);
    if (request.status === 'pending') await restorePending(redis, clickhouse, request);
  }
  await redis.set(registryKeys.deletionVersion, highest.toString());
  return rows.length;
}

async function restorePending(
  redis: Redis,
  clickhouse: ClickHouseClient,
  request: DeletionRequest,
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
  await redis.zadd(registryKeys.pendingDeletions, Date.parse(request.submitted_at), pendingMember(request));
}
