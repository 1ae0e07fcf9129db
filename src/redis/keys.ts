// The names of all keys in Redis. Every key of a shard carries the shard's hash tag, so one script may touch any of them,
// also on a cluster. Keys that belong to no shard carry the tag of the registry.

import { createHash } from 'node:crypto';
import type { TableVersion } from '../contract/records.js';

/** A segment: rows of one table and version in one shard, stored in ClickHouse by one insert. */
export type Segment = { readonly table: TableVersion; readonly number: string };

/** The hash tag of a shard, which is also the prefix of its BullMQ queues. */
export function shardTag(shard: number): string {
  return `{s${shard}}`;
}

export function shardOf(appId: string, shards: number): number {
  return shards === 1 ? 0 : createHash('sha256').update(appId).digest().readUInt32BE(0) % shards;
}

export const shardKeys = {
  /** Hash: epoch, clock, last number, backlog, open segments. The scripts derive the prefix from it. */
  state: (shard: number) => `${shardTag(shard)}:state`,
  /** Sorted set of "<table version>:<number>": the segments that ClickHouse does not have yet. */
  segments: (shard: number) => `${shardTag(shard)}:segments`,
  /** Hash of rows by segment. */
  segmentRows: (shard: number) => `${shardTag(shard)}:segment_rows`,
  segment: (shard: number, segment: Segment) => `${shardTag(shard)}:segment:${memberOf(segment)}`,
  /** Hash of buckets of claims. */
  claims: (shard: number) => `${shardTag(shard)}:claims`,
  /** Sorted set of the claims for which their buckets have no room. The scripts derive this key from that of the buckets. */
  claimsApart: (shard: number) => `${shardTag(shard)}:claims_apart`,
  /** Hash of claims by minute, from which the window is computed. */
  claimCounts: (shard: number) => `${shardTag(shard)}:claim_counts`,
  /** Sorted set of minutes of the clock of claims, scored by the last segment number when the clock reached the minute. */
  claimMinutes: (shard: number) => `${shardTag(shard)}:claim_minutes`,
  /** Hash of burnt tokens by segment: how many of its tokens can no longer store it. */
  burntTokens: (shard: number) => `${shardTag(shard)}:burnt_tokens`,
  /** Present for a while after a worker began a tick, so that no other worker begins one. */
  tickTurn: (shard: number) => `${shardTag(shard)}:tick_turn`,
  /** Present while the shard's ticks run. */
  ticked: (shard: number) => `${shardTag(shard)}:ticked`,
  /** Present for a while after a worker began to compress waiting segments. */
  compressing: (shard: number) => `${shardTag(shard)}:compressing`,
  /** Present while a worker adds keys of the shard to the index. */
  indexing: (shard: number) => `${shardTag(shard)}:indexing`,
  /** Hash of anonymous users that commits have joined to suppressed ones, until all processes know them. */
  joined: (shard: number) => `${shardTag(shard)}:joined`,
  /** How many keys an environment has asked about in this second. It expires. */
  receipts: (shard: number, appId: string) => `${shardTag(shard)}:receipts:${appId}`,
  /** Hash of the answers of each process's last commit. */
  answers: (shard: number) => `${shardTag(shard)}:answers`,
  /** Set of the minutes, since 1970, whose entries of the ledger ClickHouse does not have yet. */
  ledgerMinutes: (shard: number) => `${shardTag(shard)}:ledger_minutes`,
  /** Log of the records of a minute that were accepted or repeated: lines "<kind> <term>", each with lines "<app_id> <records>". */
  ledgerLog: (shard: number, minute: number | string) => `${shardTag(shard)}:ledger_log:${minute}`,
  /** Hash of all other counts of a minute by "<app_id> <kind> <term> <detail>". */
  ledger: (shard: number, minute: number | string) => `${shardTag(shard)}:ledger:${minute}`,
  /** Hash of the totals of these counts, as ClickHouse has them. It never expires. */
  ledgerTotals: (shard: number) => `${shardTag(shard)}:ledger_totals`,
  /** Hash of the records that were accepted in each minute of a day, as ClickHouse has them. It expires. */
  ledgerSums: (shard: number, day: number) => `${shardTag(shard)}:ledger_sums:${day}`,
} as const;

/** The keys of the scripts that take rows out of a segment, or forget it. */
export function keysOfSegment(shard: number, segment: Segment): string[] {
  const { state, segments, segmentRows } = shardKeys;
  return [state(shard), segments(shard), segmentRows(shard), shardKeys.segment(shard, segment)];
}

export const registryKeys = {
  epoch: '{registry}:epoch',
  /** Nonce of the process that loads the deployment into an emptied Redis. It expires if that process is killed. */
  loading: '{registry}:loading',
  /** Hash of documents by "<kind>:<id>". */
  documents: '{registry}:documents',
  /** Hash: the id of the server that is the primary, and how often another one took over (take-over.ts). */
  primary: '{registry}:primary',
  /** Counts the changes of the documents; readers poll it. */
  version: '{registry}:version',
  /** Hash: the number of the witness, and `kept:<server>`: the number that a ClickHouse server has (registry/witness.ts). */
  witness: '{registry}:witness',
  /** Present for a while after a process raised that number. */
  witnessTurn: '{registry}:witness_turn',
  witnessCopyTurn: '{registry}:witness_copy_turn',
  /** Sorted set by kind of what ClickHouse does not have in its present form (registry/outbox.ts). */
  uncopied: '{registry}:uncopied',
  /** The version of the latest copy of such changes. */
  copyVersion: '{registry}:copies_version',
  /** Hash of the audit log's lines that ClickHouse does not have yet. */
  audit: '{registry}:audit',
  /** Hash: how many of these lines each account has. */
  auditByAccount: '{registry}:audit_lines_by_account',
  /** Sorted set of an environment's last rejected records by time, without values. */
  rejected: (appId: string) => `{registry}:rejected:${appId}`,
  /** Hash of deletion requests by id: the request, its progress, the evidence. No identity. */
  deletions: '{registry}:deletions',
  /** Sorted set of "<account_id> <request id>" by time of submission. */
  pendingDeletions: '{registry}:deletions_pending',
  /**
   * The members of `pendingDeletions`, in the order of their texts. Whatever adds or removes a pending request does so in both sets, except
   * that a request which was hidden does not come back here while it completes.
   */
  pendingDeletionsByAccount: '{registry}:deletions_pending_by_account',
  /**
   * Hash of the weights of pending requests: by their members, the sum of each account by its id, and of all by an empty name.
   * The script that adds a member, or removes it, changes the sums with it.
   */
  deletionWeights: '{registry}:deletion_weights',
  /**
   * Sorted set like `pendingDeletions`: requests whose users no query shows any more. Workers of version 1.0.0, which do not count masked
   * rows, must not complete them.
   */
  hiddenDeletions: '{registry}:deletions_hidden',
  /** Set of pending requests whose targets ClickHouse does not have yet. */
  deletionsAwaitingTargetCopy: '{registry}:deletions_unkept',
  /** Sorted set like `pendingDeletions`: requests that can never be carried out, until an administrator ends them. */
  lostDeletions: '{registry}:deletions_lost',
  /** Sorted set of "<account_id> <time> <request id>", in the order of these texts: what an account can list. */
  listedDeletions: '{registry}:deletions_listed',
  /** Set of the complete requests whose account is to be called. */
  dueCallbacks: '{registry}:callbacks_due',
  /** Held while an account's callback is tried out. */
  callbackTest: (accountId: string) => `{registry}:callback_test:${accountId}`,
  /** A caller's reference: the keyed hash of the list that came with it, and the request's id. It expires. */
  deletionReference: (digest: string) => `{registry}:deletion_reference:${digest}`,
  /** The list of users of a request; gone when it is complete. */
  deletionTargets: (requestId: string) => `{registry}:deletion_targets:${requestId}`,
  /** Keyed hashes of the users that a request deleted, 16 bytes each, while older data may hold those users. It expires. */
  deletedUsers: (requestId: string) => `{registry}:deleted_users:${requestId}`,
  /** Present while Redis has the hashes of all users that were deleted since this backup began. It expires. */
  deletedUsersSince: (backup: string) => `{registry}:deleted_users_since:${backup}`,
  /** Sorted set of "<account_id> <export id>" by the time of their end. */
  exports: '{registry}:exports',
  /** The members of `exports`, in the order of their texts. */
  exportsByAccount: '{registry}:exports_by_account',
  /** The weights of exports, as of pending deletions. */
  exportWeights: '{registry}:export_weights',
  /** The request of an export, which names users. It expires, and a deletion of one of them removes it. */
  export: (id: string) => `{registry}:export:${id}`,
  /** Present while a backup replaces ClickHouse's tables; no round of deletions begins. */
  restoringBackup: '{registry}:restoring_backup',
  /** Held by the process that restores a backup, from its first step to its last. */
  restoreLock: '{registry}:restore_lock',
  /** Held by the process that makes a backup. */
  backupLock: '{registry}:backup_lock',
  /** Present for a while after a round of deletions, so that requests gather for the next one. */
  deletionRound: '{registry}:deletion_round',
  /** Present for a while after a round that only erases has begun. */
  erasureTurn: '{registry}:erasure_turn',
  /** Present for a while after a mutation stood still on a ClickHouse server: rounds leave it out. */
  stoodStill: (server: number) => `{registry}:stood_still:${server}`,
  /** Present for a while after the account has asked for rows to be erased at once. */
  erasureAsked: (accountId: string) => `{registry}:erasure_asked:${accountId}`,
  /** Hash of an account's deletions that a second person has to confirm, by keyed hashes of their lists. They name no user, and expire. */
  deletionProposals: (accountId: string) => `{registry}:deletion_proposals:${accountId}`,
  /** Present for a while after a pass that erases masked rows has begun, the longer the more it costs. */
  erasureRest: '{registry}:erasure_rest',
  /** Present from the beginning of a pass until the requests whose rows it has erased are complete; `late` once their count made way. */
  erasurePass: '{registry}:erasure_pass',
  /** Present after a pass has given way to users who were to be hidden, until it may give way again. */
  erasureGaveWay: '{registry}:erasure_gave_way',
  /** Set of requests for which passes do not rest while they are hidden. */
  erasuresWanted: '{registry}:erasures_wanted',
  /** Present while the append-only file still holds deleted data: what was deleted last. */
  rewriteWanted: '{registry}:rewrite_wanted',
  /** Held by the process that moves or deletes failed rows. */
  maintenanceLock: '{registry}:failed_rows_lock',
  /** Held by the worker that last looked for stray targets. */
  strayTargets: '{registry}:stray_targets',
  /** Present for a while after the ledger was written, and after it was compared with what is stored. */
  ledgerTurn: '{registry}:ledger_turn',
  ledgerCheckTurn: '{registry}:ledger_check_turn',
  /** Hash: how far each server was compared, and when it was compared again. */
  ledgerChecked: '{registry}:ledger_checked',
  /** Hash of the differences that were found, by environment, kind and minute. */
  ledgerDifferences: '{registry}:ledger_differences',
  /** Present for a while after a run that deleted expired rows. */
  retentionRun: '{registry}:retention_run',
  /** Since when such a run is due, in seconds since 1970; absent when everything that has expired is deleted. */
  retentionDue: '{registry}:retention_due',
  rewriteSpacing: '{registry}:rewrite_spacing',
  /** Hash: version of the suppressions, the first version whose change is kept, users and joined names by account. */
  suppressions: '{registry}:suppressions',
  /** Sorted set of the last changes of suppressions by version. */
  suppressionChanges: '{registry}:suppression_changes',
  /** Hash by version of the changes that ClickHouse does not have yet. */
  uncopiedSuppressions: '{registry}:suppressions_uncopied',
  /** Hash of an account's suppressed names: keyed hashes, each with the version since when, and its roots. */
  suppressedNames: (accountId: string) => `{registry}:suppressed_names:${accountId}`,
  /** Sets of the names that are suppressed because of a root. */
  suppressedBy: (accountId: string, root: string) => `{registry}:suppressed_by:${accountId}:${root}`,
  /** Set of the roots of an account that are being freed. */
  freedRoots: (accountId: string) => `{registry}:freed_roots:${accountId}`,
  /** Counts the submissions of suppressions by a token. */
  suppressionRequests: (digest: string) => `{registry}:suppression_requests:${digest}`,
  token: (hash: string) => `{registry}:token:${hash}`,
  /** Sorted set of the live tokens that were issued for a key. */
  liveTokens: (keyHash: string) => `{registry}:live_tokens:${keyHash}`,
  /** Hash: how many tokens were issued for an account in each minute, as long as they may be live. */
  issuedTokens: (accountId: string) => `{registry}:issued_tokens:${accountId}`,
  tokenFailures: (digest: string) => `{registry}:token_failures:${digest}`,
  statusRequests: (digest: string) => `{registry}:status_requests:${digest}`,
  /** A person's session of the console; it expires. */
  session: (hash: string) => `{registry}:session:${hash}`,
  /** Sorted set of the hashes of a person's sessions by the time at which they end. */
  sessionsOf: (personId: string) => `{registry}:sessions_of:${personId}`,
  /** Counts how often sessions were ended before their time, so that processes notice it. */
  sessionEndings: '{registry}:session_endings',
  /** Marks a sign-in by the provider as used, as long as its cookie is valid. */
  usedSignOn: (hash: string) => `{registry}:sign_on:${hash}`,
  /** Counts the refused sign-ins from a network. It expires. */
  signOnRefusals: (digest: string) => `{registry}:sign_on_refusals:${digest}`,
  /** Hash: wrong passwords of a person, browser or address, and when the next attempt may be checked. It expires. */
  signIns: (digest: string) => `{registry}:sign_ins:${digest}`,
  /** Hash of the processes that run now, on all hosts. */
  processes: '{registry}:processes',
  /** Hash of the processes' metrics by process. */
  metrics: (host: string) => `{registry}:metrics:${host}`,
} as const;

/** Pairings of devices with the Event Visualizer. All of these keys expire. */
export const visualizerKeys = {
  /** Hash: app_id, code, digest of the device's address, state, and when it ends at the latest. */
  pairing: (id: string) => `{visualizer}:pairing:${id}`,
  /** The id of the pairing that waits or lives with this code. */
  code: (code: string) => `{visualizer}:code:${code}`,
  /** Sorted sets of pairings by the time at which they end. */
  waiting: '{visualizer}:waiting',
  waitingOfApp: (appId: string) => `{visualizer}:waiting_of_app:${appId}`,
  waitingOfAddress: (digest: string) => `{visualizer}:waiting_of_address:${digest}`,
  /** Counts the wrong codes from an address. */
  failures: (digest: string) => `{visualizer}:failures:${digest}`,
  /** A channel, not a key: what a live pairing shows. */
  channel: (id: string) => `visualizer:${id}`,
} as const;

/** A segment as a member of the set of outstanding segments: `<table version>:<number>`. */
export function memberOf(segment: Segment): string {
  return `${segment.table}:${segment.number}`;
}

export function segmentOfMember(member: string): Segment {
  const colon = member.lastIndexOf(':');
  return { table: member.slice(0, colon) as TableVersion, number: member.slice(colon + 1) };
}
