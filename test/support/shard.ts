// A shard of a private Redis, loaded for a deployment, and commits to it through the script itself.

import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { markerRows, tables } from '../../src/clickhouse/tables.js';
import {
  encodedRecords,
  type Group,
  type IngestRecord,
  type LimitCheck,
  packedBytesMax,
  packGroups,
} from '../../src/ingest/pack.js';
import { shardKeys } from '../../src/redis/keys.js';
import { runScript, type Script, scripts } from '../../src/redis/scripts.js';

export const epoch = 'e'.repeat(32);

export type CommitOverrides = {
  readonly epoch?: string;
  readonly sequence?: number;
  readonly process?: string;
  readonly backlogBytesMax?: number;
  readonly segmentBytesMax?: number;
  readonly segmentAgeMsMax?: number;
  readonly script?: Script;
};

/** Makes the shard take commits, as a start of the service does. */
export async function loadShard(
  redis: Redis,
  shard = 0,
  numberFloor = '0',
  claimBuckets = 64,
): Promise<void> {
  const state = shardKeys.state(shard);
  // As whoever may load notes it in the shard.
  await redis.hset(state, 'loading', 'test');
  await runScript(redis, scripts.loadShard, [state], [epoch, numberFloor, claimBuckets, 'test']);
}

let sequence = 0;

/** Runs the commit script; settles with its answer. */
export async function commit(
  redis: Redis,
  groups: readonly Group[],
  overrides: CommitOverrides = {},
): Promise<string> {
  sequence += 1;
  const keys = [shardKeys.state(0), shardKeys.segments(0), shardKeys.answers(0)];
  const packed = packGroups(groups);
  const args = [
    overrides.epoch ?? epoch,
    overrides.sequence ?? sequence,
    overrides.backlogBytesMax ?? 1e9,
    overrides.segmentBytesMax ?? 1e9,
    overrides.process ?? 'test',
    packed.decisions,
    overrides.segmentAgeMsMax ?? 1e9,
    ...tables.flatMap((table, index) => [table, markerRows[table], packed.rows[index] ?? '']),
  ];
  return String(await runScript(redis, overrides.script ?? scripts.commit, keys, args));
}

export function group(list: IngestRecord[], limits: LimitCheck[] = []): Group {
  const records = encodedRecords(list);
  return { limits, records, bytes: packedBytesMax(limits, records) };
}

/** A row of the table events for a test. `claim` of the same text is the same claim. */
export function eventRecord(name: string, claim?: string): IngestRecord {
  const eventId = randomBytes(16).toString('hex');
  return {
    table: 0,
    row: `["1000000001","${eventId}",${JSON.stringify(name)},null,"ada","",null,{},`,
    claim: claim === undefined ? undefined : Buffer.from(claim.padEnd(16, '.')).toString('hex').slice(0, 32),
  };
}

/** Everything a Redis holds, so that two states can be compared. */
export async function dumpAll(redis: Redis): Promise<Map<string, string>> {
  const dump = new Map<string, string>();
  for (const key of (await redis.keys('*')).sort()) {
    dump.set(key, ((await redis.dumpBuffer(key)) ?? Buffer.alloc(0)).toString('hex'));
  }
  return dump;
}
