// The second copy of deletion requests, in ClickHouse: written within seconds of a change, read when Redis was
// emptied. The targets of pending ones are copied by the first round that sees them.

import { createHash } from 'node:crypto';
import { inCalls, type Loading } from '../accounts/loading.js';
import { readUnmirrored, type Unmirrored } from '../accounts/mirror.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { loads } from '../contract/limits.js';
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

/** Loads the requests, and the targets of pending ones, into an emptied Redis; settles with how many requests. */
export async function restoreDeletions(clickhouse: ClickHouseClient, loading: Loading): Promise<number> {
  const open: DeletionRequest[] = [];
  let count = 0;
  let highest = 0n;
  // Written while it is read: these are all requests that there ever were, and to parse them all at once would take
  // longer than the right to load lasts without a renewal.
  for await (const call of inCalls(readRequests(clickhouse), ({ document }) => document.length)) {
    const args: string[] = [];
    for (const { document, counted } of call) {
      const request = JSON.parse(document) as DeletionRequest;
      const kind = kindOf(request);
      // A worker looks once more whether all targets are there.
      const { targets_kept: _, ...unkept } = request;
      args.push(request.deletion_request_id, kind === 'unkept' ? JSON.stringify(unkept) : document);
      if (kind !== 'over') open.push(request);
      if (counted > highest) highest = counted;
    }
    count += call.length;
    await loading.write(
      scripts.loadDocuments,
      [registryKeys.deletions, registryKeys.deletionVersion],
      [highest.toString(), ...args],
    );
  }
  open.sort(byFences);
  await restoreOpen(clickhouse, loading, open);
  return count;
}

type MirroredRequest = { readonly document: string; readonly counted: bigint };

/** The second copy: every request's latest form, with its version, one after another. */
async function* readRequests(clickhouse: ClickHouseClient): AsyncGenerator<MirroredRequest> {
  const result = await clickhouse.query({
    query: `SELECT argMax(deletion_requests.document, deletion_requests.version) AS document, toString(max(deletion_requests.version)) AS version
      FROM deletion_requests GROUP BY request_id`,
    format: 'JSONEachRow',
  });
  for await (const rows of result.stream<{ document: string; version: string }>()) {
    for (const row of rows) {
      const { document, version } = row.json();
      yield { document, counted: BigInt(version) % BigInt(completeOffset) };
    }
  }
}

/** How a request is restored that is not over, as the script names it. */
function kindOf({ status, state, verified_at }: DeletionRequest): 'unkept' | 'pending' | 'lost' | 'over' {
  if (status === 'complete' || state === 'ended') return 'over';
  if (state === 'targets_lost') return 'lost';
  return verified_at === undefined ? 'unkept' : 'pending';
}

/** Restores who waits, the oldest first, and the targets of all but the lost ones. */
async function restoreOpen(
  clickhouse: ClickHouseClient,
  loading: Loading,
  inOrder: readonly DeletionRequest[],
): Promise<void> {
  const placeOf = new Map(inOrder.map((request, place) => [request, place]));
  for (const requests of inQueries(inOrder)) {
    const targetsOf = await readKeptTargets(clickhouse, requests);
    const entries = requests.map((request) => {
      const id = request.deletion_request_id;
      const targets = JSON.stringify(targetsOf.get(id) ?? []);
      return [id, pendingMember(request), placeOf.get(request) ?? 0, kindOf(request), targets] as const;
    });
    for await (const call of inCalls(entries, ([, , , , targets]) => targets.length)) {
      await loading.write(
        scripts.loadPendingDeletions,
        [
          registryKeys.pendingDeletions,
          registryKeys.lostDeletions,
          registryKeys.unkeptDeletions,
          registryKeys.deletionTargets(''),
        ],
        call.flat(),
      );
    }
  }
}

/** Divides requests, in the order of their ids, into those whose targets one query asks for. */
function* inQueries(requests: readonly DeletionRequest[]): Generator<DeletionRequest[]> {
  let group: DeletionRequest[] = [];
  let targets = 0;
  for (const request of requests.toSorted(byId)) {
    if (group.length > 0 && targets + request.targets > loads.targetsPerQueryMax) {
      yield group;
      group = [];
      targets = 0;
    }
    group.push(request);
    targets += request.targets;
  }
  if (group.length > 0) yield group;
}

function byId(a: DeletionRequest, b: DeletionRequest): number {
  return a.deletion_request_id < b.deletion_request_id ? -1 : 1;
}

/** The targets of requests that are sorted by their ids; the table is sorted so too. */
async function readKeptTargets(
  clickhouse: ClickHouseClient,
  sorted: readonly DeletionRequest[],
): Promise<ReadonlyMap<string, Target[]>> {
  const waiting = sorted.filter((request) => kindOf(request) !== 'lost');
  const targetsOf = new Map<string, Target[]>(waiting.map(({ deletion_request_id: id }) => [id, []]));
  if (waiting.length === 0) return targetsOf;
  const result = await clickhouse.query({
    query: `SELECT DISTINCT request_id, identity, toString(user_id) AS user_id FROM ${targetTable}
      WHERE request_id BETWEEN {first:String} AND {last:String} AND app_id = ''`,
    query_params: {
      first: waiting[0]?.deletion_request_id,
      last: waiting.at(-1)?.deletion_request_id,
    },
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ request_id: string; identity: string; user_id: string | null }>();
  for (const { request_id: id, identity, user_id: userId } of rows) {
    targetsOf.get(id)?.push(userId === null ? `i${identity}` : `u${userId}`);
  }
  return targetsOf;
}

/** The order of submission, as the fences tell it: clocks of API processes differ. */
function byFences(a: DeletionRequest, b: DeletionRequest): number {
  for (const [shard, fence] of Object.entries(a.fences)) {
    const other = b.fences[shard] ?? '0';
    if (fence !== other) return BigInt(fence) < BigInt(other) ? -1 : 1;
  }
  return a.submitted_at.localeCompare(b.submitted_at);
}
