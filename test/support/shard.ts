// A loaded shard in a private Redis, with commits to it by the script alone or by a committer.

import { createHash } from 'node:crypto';
import { after } from 'node:test';
import type { Redis } from 'ioredis';
import type { CommitResult } from '../../src/ingest/attempts.js';
import { type CommitterOptions, createCommitter } from '../../src/ingest/commit.js';
import { uniqueEventId } from '../../src/ingest/event-id.js';
import {
  encodedRecords,
  type Group,
  type IngestRecord,
  type LimitCheck,
  lettersByGroup,
  packedBytesMax,
  packGroups,
} from '../../src/ingest/pack.js';
import { rowEncoder } from '../../src/ingest/row.js';
import type { Submission } from '../../src/ingest/submission.js';
import { createLog } from '../../src/log.js';
import type { Suppressions } from '../../src/privacy/suppression/suppressions.js';
import { connectForCommits, untilReady } from '../../src/redis/client.js';
import { keysOfSegment, type Segment, segmentOfMember, shardKeys } from '../../src/redis/keys.js';
import { runScript, type Script, scripts } from '../../src/redis/scripts.js';
import { startStore } from './stores.js';

export const epoch = 'e'.repeat(32);

export type CommitOverrides = {
  readonly shard?: number;
  readonly epoch?: string;
  readonly sequence?: number;
  readonly process?: string;
  readonly backlogBytesMax?: number;
  readonly segmentBytesMax?: number;
  readonly segmentAgeMsMax?: number;
  readonly suppressionVersion?: number;
  readonly registryVersion?: number;
  readonly joinsWaitingMax?: number;
  readonly script?: Script;
};

/** Loads the shard so that it accepts commits, as the start of the service does. */
export async function loadShard(
  redis: Redis,
  shard = 0,
  numberFloor = '0',
  claimBuckets = 64,
  nonce = 'test',
): Promise<void> {
  const state = shardKeys.state(shard);
  // The script loads a shard only for the process whose nonce is in its state.
  await redis.hset(state, 'loading', nonce);
  await runScript(
    redis,
    scripts.loadShard,
    [state],
    [epoch, numberFloor, claimBuckets, nonce, '0', '0', '0', '0', '0'],
  );
}

export const noSuppressions: Suppressions = {
  version: () => 0,
  of: () => undefined,
  reach: async () => undefined,
  close: () => undefined,
};

export function submissionOf(group: Group, accountId = '1'): Submission {
  const registryVersion = Number.MAX_SAFE_INTEGER;
  return { accountId, registryVersion, groups: [group], renew: () => undefined };
}

/** Starts a committer for a shard in a Redis of its own. Call it while the test's file is loaded; it ends after the tests. */
export async function startCommitter(over: Partial<CommitterOptions> = {}) {
  const { server, redis: admin } = await startStore();
  const log = createLog('test', 'silent');
  const address = { redisUrl: server.url, redisCluster: false };
  const redis = connectForCommits(address, log);
  const committer = createCommitter({
    redis,
    shard: 0,
    suppressions: noSuppressions,
    epoch,
    backlogBytesMax: 1e9,
    segmentBytesMax: 1e6,
    segmentAgeMsMax: 1e6,
    crash: () => undefined,
    log,
    ...over,
  });
  after(async () => {
    await committer.close();
    redis.disconnect();
  });
  await loadShard(admin);
  await untilReady(redis, 30_000);
  const submit = (what: Group) =>
    new Promise<CommitResult>((settle) =>
      committer.submit(submissionOf(what), ([result]) => settle(result as CommitResult)),
    );
  return { redis, committer, submit };
}

/** Seals the open segments of at least this age; settles with the members of outstanding ones, the oldest first. */
export async function sealMembers(redis: Redis, ageMs = 0, listMax = 1_000): Promise<string[]> {
  const { state, segments, tickTurn, ticked } = shardKeys;
  await redis.del(tickTurn(0));
  const keys = [state, segments, tickTurn, ticked].map((key) => key(0));
  return (await runScript(redis, scripts.tick, keys, [epoch, ageMs, listMax, 1, 1])) as string[];
}

export async function sealAll(redis: Redis, ageMs?: number): Promise<Segment[]> {
  return (await sealMembers(redis, ageMs)).map(segmentOfMember);
}

/** Forgets a segment, as if it were stored. Settles with 1 if it was outstanding, else 0. */
export function forget(redis: Redis, member: string): Promise<unknown> {
  return runScript(redis, scripts.forget, keysOfSegment(0, segmentOfMember(member)), [member]);
}

let sequence = 0;

/** Runs the commit script; settles with its answer. Where the script answers for all records at once, expands that into letters by group. */
export async function commit(
  redis: Redis,
  groups: readonly Group[],
  overrides: CommitOverrides = {},
): Promise<string> {
  sequence += 1;
  const { shard = 0 } = overrides;
  const keys = [shardKeys.state(shard), shardKeys.segments(shard), shardKeys.answers(shard)];
  const packed = packGroups(groups);
  const args = [
    overrides.epoch ?? epoch,
    overrides.sequence ?? sequence,
    overrides.backlogBytesMax ?? 1e9,
    overrides.segmentBytesMax ?? 1e9,
    overrides.process ?? 'test',
    packed.decisions,
    overrides.segmentAgeMsMax ?? 1e9,
    overrides.suppressionVersion ?? 0,
    overrides.joinsWaitingMax ?? 1e9,
    overrides.registryVersion ?? Number.MAX_SAFE_INTEGER,
    ...packed.tables,
  ];
  const answer = String(await runScript(redis, overrides.script ?? scripts.commit, keys, args));
  if (answer !== '*' && !answer.startsWith('=')) return answer;
  const records = groups.reduce((sum, each) => sum + each.records.length, 0);
  return lettersByGroup(answer === '*' ? 's'.repeat(records) : answer.slice(1), groups).join();
}

export function group(list: IngestRecord[], limits: LimitCheck[] = []): Group {
  const records = encodedRecords(list);
  return { appId: '1000000001', limits, records, bytes: packedBytesMax(limits, records) };
}

const encodeEvent = rowEncoder('events');

/** A row of the table events. Records with equal `claim` texts make the same claim. */
export function eventRecord(name: string, claim?: string): IngestRecord {
  const eventId = claim === undefined ? uniqueEventId() : eventIdOf(claim);
  return {
    table: 0,
    row: encodeEvent('1000000001', { event: name, identity: 'ada' }, false, eventId),
    claim: claim === undefined ? undefined : eventId,
  };
}

/**
 * 32 hexadecimal digits of a hash, like real ids. The text itself would not do: if it contained the bytes of a minute, the search in a
 * bucket of claims could match across two entries.
 */
export function eventIdOf(claim: string): string {
  return createHash('sha256').update(claim).digest('hex').slice(0, 32);
}

export async function dumpAll(redis: Redis): Promise<Map<string, string>> {
  const dump = new Map<string, string>();
  for (const key of (await redis.keys('*')).sort()) {
    dump.set(key, ((await redis.dumpBuffer(key)) ?? Buffer.alloc(0)).toString('hex'));
  }
  return dump;
}
