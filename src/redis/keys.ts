// All names of keys in Redis. Every key of a shard carries the shard's hash tag, so that one script may touch
// any of them, on one Redis as on a cluster; what belongs to no shard carries the tag of the registry.

import { createHash } from 'node:crypto';

export type TableName = string;

/** A segment: one table's rows in one shard, stored in ClickHouse by one insert. */
export type Segment = { readonly table: TableName; readonly number: string };

/** The hash tag of a shard, which is also the prefix of its BullMQ queues. */
export function shardTag(shard: number): string {
  return `{s${shard}}`;
}

/** The shard of an environment. */
export function shardOf(appId: string, shards: number): number {
  return shards === 1 ? 0 : createHash('sha256').update(appId).digest().readUInt32BE(0) % shards;
}

export const shardKeys = {
  /** Hash: epoch, clock, last number, backlog, open segments. The scripts derive the prefix from it. */
  state: (shard: number) => `${shardTag(shard)}:state`,
  /** Sorted set of "<table>:<number>": the segments that ClickHouse does not have yet. */
  segments: (shard: number) => `${shardTag(shard)}:segments`,
  /** Hash of rows by segment. */
  segmentRows: (shard: number) => `${shardTag(shard)}:segment_rows`,
  segment: (shard: number, segment: Segment) => `${shardTag(shard)}:segment:${memberOf(segment)}`,
  /** Hash of buckets of claims. */
  claims: (shard: number) => `${shardTag(shard)}:claims`,
  /** Hash of claims by minute, from which the window is computed. */
  claimCounts: (shard: number) => `${shardTag(shard)}:claim_counts`,
  /** Sorted set of the minutes of the clock of claims by the last number when it reached them. */
  claimMinutes: (shard: number) => `${shardTag(shard)}:claim_minutes`,
  /** Hash of burnt tokens by segment: how many of its tokens can no longer store it. */
  burntTokens: (shard: number) => `${shardTag(shard)}:burnt_tokens`,
  /** Present while the shard's ticks run. */
  ticked: (shard: number) => `${shardTag(shard)}:ticked`,
  /** Present for a while after a worker began to compress waiting segments. */
  compressing: (shard: number) => `${shardTag(shard)}:compressing`,
  /** Hash of the answers of each process's last commit. */
  answers: (shard: number) => `${shardTag(shard)}:answers`,
} as const;

export const registryKeys = {
  epoch: '{registry}:epoch',
  /** Nonce of the process that loads the deployment into an emptied Redis; goes by itself when that one is killed. */
  loading: '{registry}:loading',
  /** Hash of documents by "<kind>:<id>". */
  documents: '{registry}:documents',
  /** Counts the changes of the documents; readers poll it. */
  version: '{registry}:version',
  /** Set of the documents' keys that ClickHouse does not have yet. */
  unmirrored: '{registry}:unmirrored',
  /** Hash of counters by "<app_id>:<mending>". */
  mendings: '{registry}:mendings',
  /** Sorted set of the last rejected records of an environment by time, without values. */
  rejected: (appId: string) => `{registry}:rejected:${appId}`,
  /** Hash of deletion requests by id: what was asked, how far it is, the evidence. No identity. */
  deletions: '{registry}:deletions',
  /** Sorted set of "<account_id> <request id>" by time of submission. */
  pendingDeletions: '{registry}:deletions_pending',
  /** Set of pending requests whose targets ClickHouse does not have yet. */
  unkeptDeletions: '{registry}:deletions_unkept',
  /** Sorted set like that of pending ones: requests that can never be carried out, until somebody ends them. */
  lostDeletions: '{registry}:deletions_lost',
  /** Set of the requests that ClickHouse does not have in their present form. */
  unmirroredDeletions: '{registry}:deletions_unmirrored',
  /** The targets of a request; gone when it is complete. */
  deletionTargets: (requestId: string) => `{registry}:deletion_targets:${requestId}`,
  /** Present for a while after a round of deletions, so that requests gather for the next one. */
  deletionRound: '{registry}:deletion_round',
  /** Present while the append-only file still holds what was deleted. */
  rewriteWanted: '{registry}:rewrite_wanted',
  /** Held by whoever moves or deletes failed rows. */
  failedRowsLock: '{registry}:failed_rows_lock',
  /** Held by whoever looked for stray targets last. */
  strayTargets: '{registry}:stray_targets',
  rewriteSpacing: '{registry}:rewrite_spacing',
  /** Counts mirrored forms of deletion requests. */
  deletionVersion: '{registry}:deletions_version',
  token: (hash: string) => `{registry}:token:${hash}`,
  /** Sorted set of the live tokens that were issued for a key. */
  liveTokens: (keyHash: string) => `{registry}:live_tokens:${keyHash}`,
  tokenFailures: (digest: string) => `{registry}:token_failures:${digest}`,
  statusRequests: (digest: string) => `{registry}:status_requests:${digest}`,
  /** Hash of the processes' metrics by process. */
  metrics: (host: string) => `{registry}:metrics:${host}`,
} as const;

/** Pairings of devices with the Event Visualizer. All of them end by themselves. */
export const visualizerKeys = {
  /** Hash: app_id, code, digest of the device's address, state, and when it ends at the latest. */
  pairing: (id: string) => `{visualizer}:pairing:${id}`,
  /** The id of the pairing that waits with this code, or lives by it. */
  code: (code: string) => `{visualizer}:code:${code}`,
  /** Sorted sets of pairings by the time at which they end. */
  waiting: '{visualizer}:waiting',
  waitingOfApp: (appId: string) => `{visualizer}:waiting_of_app:${appId}`,
  waitingOfAddress: (digest: string) => `{visualizer}:waiting_of_address:${digest}`,
  live: '{visualizer}:live',
  /** Counts the wrong tokens and codes from an address. */
  failures: (digest: string) => `{visualizer}:failures:${digest}`,
  /** Channel, no key: what a live pairing shows. */
  channel: (id: string) => `visualizer:${id}`,
} as const;

export function memberOf(segment: Segment): string {
  return `${segment.table}:${segment.number}`;
}

export function segmentOfMember(member: string): Segment {
  const colon = member.lastIndexOf(':');
  return { table: member.slice(0, colon) as TableName, number: member.slice(colon + 1) };
}
