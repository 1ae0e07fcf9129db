// The second copy of deletion requests, in ClickHouse: written within seconds of a change, read after Redis was emptied. The targets of
// pending requests are copied by the first round that sees them.

import { inBatches } from '../../batches.js';
import { readRows, streamRows } from '../../clickhouse/answers.js';
import { type ClickHouseClient, insertRows } from '../../clickhouse/client.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { type Command, inScriptCalls, type Loading, versionAfterLoss } from '../../registry/loading.js';
import { completeOffset, rowOfDeletion } from '../../registry/outbox.js';
import { stateLoads } from '../../tuning.js';
import { listedMember } from './listed.js';
import { restoreReferences } from './references.js';
import { type DeletionRequest, type PlacedTarget, pendingMember } from './request.js';
import { type TargetList, targetOfColumns, weightOfList } from './targets.js';
import { targetTable } from './user-tables.js';

/** Copies requests that are about to be marked complete in Redis, so that no caller learns of a completion that could be lost. */
export async function copyCompleted(
  redis: Redis,
  clickhouse: ClickHouseClient,
  requests: readonly DeletionRequest[],
): Promise<void> {
  const version = await redis.incr(registryKeys.copyVersion);
  const rows = requests.map((request) =>
    rowOfDeletion(request.deletion_request_id, JSON.stringify(request), version),
  );
  await insertRows(clickhouse, 'deletion_requests', rows);
}

/** Loads the requests, and the targets of pending ones, into an emptied Redis; settles with how many requests. */
export async function restoreDeletions(clickhouse: ClickHouseClient, loading: Loading): Promise<number> {
  const open: DeletionRequest[] = [];
  let count = 0;
  let highest = 0n;
  // Written while being read: these are all requests ever submitted, and parsing them in one go would keep this process from renewing its
  // right to load.
  const rows = streamRows<{ document: string; version: string }>(clickhouse, {
    query: `SELECT argMax(deletion_requests.document, deletion_requests.version) AS document, toString(max(deletion_requests.version)) AS version
      FROM deletion_requests GROUP BY request_id`,
  });
  for await (const call of inScriptCalls(rows, ({ document }) => document.length)) {
    const commands: Command[] = [];
    for (const { document, version } of call) {
      const counted = BigInt(version) % BigInt(completeOffset);
      const request = JSON.parse(document) as DeletionRequest;
      const kind = kindOf(request);
      // A worker checks again whether ClickHouse has all targets, and counts again what was hidden.
      const { targets_kept: _, ...rest } = request;
      const unkept = rest.state === 'hidden' ? { ...rest, state: 'verifying' } : rest;
      const { deletion_request_id: id, callback } = request;
      commands.push(
        ['HSET', registryKeys.deletions, id, kind === 'unkept' ? JSON.stringify(unkept) : document],
        ['ZADD', registryKeys.listedDeletions, 0, listedMember(request)],
      );
      if (callback?.state === 'pending') commands.push(['SADD', registryKeys.dueCallbacks, id]);
      if (kind !== 'over') open.push(request);
      if (counted > highest) highest = counted;
    }
    count += call.length;
    await loading.write(commands);
  }
  // A paused worker may still copy a request under a version from before the loss.
  const version = versionAfterLoss(loading, highest.toString());
  await loading.write([['SET', registryKeys.copyVersion, version]]);
  open.sort(byFences);
  await restoreOpen(clickhouse, loading, open);
  await restoreReferences(clickhouse, loading);
  return count;
}

/** How a request is restored. `unkept`: a worker checks whether ClickHouse has all its targets. `over`: it need not be carried out. */
function kindOf({ status, state, verified_at }: DeletionRequest): 'unkept' | 'pending' | 'lost' | 'over' {
  if (status === 'complete' || state === 'ended') return 'over';
  if (state === 'targets_lost') return 'lost';
  return verified_at === undefined ? 'unkept' : 'pending';
}

/** Restores the waiting requests, the oldest first, and the targets of all but the lost ones. */
async function restoreOpen(
  clickhouse: ClickHouseClient,
  loading: Loading,
  inOrder: readonly DeletionRequest[],
): Promise<void> {
  const placeOf = new Map(inOrder.map((request, place) => [request, place]));
  const sorted = inOrder.toSorted(byId);
  const { targetsPerQueryMax } = stateLoads;
  for (const requests of inBatches(sorted, sorted.length, ({ targets }) => targets, targetsPerQueryMax)) {
    const targetsOf = await readKeptTargets(clickhouse, requests);
    const entries = requests.map((request) => {
      const id = request.deletion_request_id;
      const targets = JSON.stringify(listOf(targetsOf.get(id) ?? []));
      const member = pendingMember(request);
      const place = placeOf.get(request) ?? 0;
      const kind = kindOf(request);
      const weight = weightOfList(targets, request.targets);
      const ofLost: Command[] = [['ZADD', registryKeys.lostDeletions, place, member]];
      const commands: Command[] = [
        ['ZADD', registryKeys.pendingDeletions, place, member],
        ['ZADD', registryKeys.pendingDeletionsByAccount, 0, member],
        ['HSET', registryKeys.deletionWeights, member, weight],
        ['HINCRBY', registryKeys.deletionWeights, request.account_id, weight],
        ['HINCRBY', registryKeys.deletionWeights, '', weight],
        ['SET', registryKeys.deletionTargets(id), targets],
      ];
      if (kind === 'unkept') commands.push(['SADD', registryKeys.deletionsAwaitingTargetCopy, id]);
      return { targets, commands: kind === 'lost' ? ofLost : commands };
    });
    for await (const call of inScriptCalls(entries, ({ targets }) => targets.length))
      await loading.write(call.flatMap(({ commands }) => commands));
  }
}

function byId(a: DeletionRequest, b: DeletionRequest): number {
  return a.deletion_request_id < b.deletion_request_id ? -1 : 1;
}

/** The targets of requests. The requests are sorted by id, as the table is. */
async function readKeptTargets(
  clickhouse: ClickHouseClient,
  sorted: readonly DeletionRequest[],
): Promise<ReadonlyMap<string, PlacedTarget[]>> {
  const waiting = sorted.filter((request) => kindOf(request) !== 'lost');
  const targetsOf = new Map<string, PlacedTarget[]>(waiting.map(({ deletion_request_id: id }) => [id, []]));
  if (waiting.length === 0) return targetsOf;
  const rows = await readRows<{
    request_id: string;
    identity: string;
    user_id: string | null;
    place: number;
  }>(clickhouse, {
    query: `SELECT DISTINCT request_id, identity, toString(user_id) AS user_id, place FROM ${targetTable}
      WHERE request_id BETWEEN {first:String} AND {last:String} AND app_id = ''`,
    query_params: {
      first: waiting[0]?.deletion_request_id,
      last: waiting.at(-1)?.deletion_request_id,
    },
  });
  for (const { request_id: id, identity, user_id: userId, place } of rows) {
    targetsOf.get(id)?.push({ target: targetOfColumns(identity, userId), place });
  }
  return targetsOf;
}

/** The list with all targets back in their places. */
function listOf(placed: readonly PlacedTarget[]): TargetList {
  const list: TargetList[number][] = [];
  for (const { target, place } of placed.toSorted((a, b) => a.place - b.place)) {
    while (list.length < place) list.push('');
    list.push(target);
  }
  return list;
}

/** The order of submission, by the fences, since the clocks of API processes differ. */
function byFences(a: DeletionRequest, b: DeletionRequest): number {
  for (const [shard, fence] of Object.entries(a.fences)) {
    const other = b.fences[shard] ?? '0';
    if (fence !== other) return BigInt(fence) < BigInt(other) ? -1 : 1;
  }
  return a.submitted_at.localeCompare(b.submitted_at);
}
