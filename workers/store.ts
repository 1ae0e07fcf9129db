// Stores one sealed segment in ClickHouse exactly once, though its job may run any number of times, at once
// in several workers, or go on after a long stop. A segment is forgotten only when its marker row was read.

import { type ClickHouseClient, classifyFault } from '../src/clickhouse/client.js';
import { stampRows } from '../src/clickhouse/stamps.js';
import {
  insertSegment,
  isInsertRunning,
  isRefusedSegment,
  isStored,
  tokenOf,
} from '../src/clickhouse/store.js';
import type { TableName } from '../src/clickhouse/tables.js';
import { commits } from '../src/contract/limits.js';
import type { CrashPoint } from '../src/crash-point.js';
import { describeError, type Log } from '../src/log.js';
import { insertRows, insertSeconds, tokensBurnt } from '../src/metrics.js';
import type { Redis } from '../src/redis/client.js';
import { memberOf, type Segment, shardKeys } from '../src/redis/keys.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import { quarantine } from './quarantine.js';
import { rowsOfStored } from './segment-bytes.js';

export type StoreOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly shard: number;
  readonly crash: CrashPoint;
  readonly log: Log;
};

/**
 * `stored`: by this call. `found`: ClickHouse had it. `gone`: another call stored and forgot it.
 * Rejects when it could not be stored now; call again later.
 */
export type StoreResult = 'stored' | 'found' | 'gone';

const attemptsMax = 10;

/**
 * Whether a job's first try may spare the look for the marker before its insert, a third of its statements:
 * had another call stored so young a segment, ClickHouse would know the token and take nothing twice. Not so of one
 * that is overdue: a power cut may have brought it back without its end (`appendfsync everysec`), and so under another
 * token than it was stored with. A clock that is ahead only costs the look; one that is behind by as much as such a
 * segment is old spares it wrongly.
 */
export function isFresh(
  segment: Segment,
  triesStarted: number,
  nowMs: number,
  segmentAgeMsMax: number,
): boolean {
  const ageMs = nowMs - Number(segment.number) / 1000;
  return triesStarted <= 1 && ageMs >= 0 && ageMs < segmentAgeMsMax + commits.overdueSegmentMsMax;
}

export async function storeSegment(
  options: StoreOptions,
  segment: Segment,
  fresh = false,
): Promise<StoreResult> {
  const { redis, clickhouse, shard, crash, log } = options;
  const name = { table: segment.table as TableName, number: segment.number };
  /** Redis was asked again, after ClickHouse refused what was read from a Redis that was emptied since. */
  let isAsked = false;

  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    const bytes = await readSegment(redis, shard, segment);
    if (bytes === undefined) {
      // A worker that was stopped for long may have noted a burnt token after the segment was forgotten.
      await redis.hdel(shardKeys.burntTokens(shard), memberOf(segment));
      return 'gone';
    }
    crash('segment_read');
    const looks = !fresh || attempt > 0;
    if (looks && (await isStored(clickhouse, name))) return forget(options, segment, 'found');

    const burnt = await readBurnt(redis, shard, segment);
    const stamped = stampRows(bytes);
    const started = performance.now();
    crash('before_insert');
    try {
      await insertSegment(clickhouse, name, stamped.bytes, tokenOf(name, bytes, burnt), isAsked);
    } catch (error) {
      insertSeconds.observe({ table: name.table, result: 'failed' }, (performance.now() - started) / 1000);
      if (isRefusedSegment(error) && !isAsked) {
        isAsked = true;
        continue;
      }
      if (classifyFault(error) !== 'poison') throw error;
      log.warn({ segment, error: describeError(error) }, 'clickhouse refuses rows of a segment');
      try {
        await quarantine(options, name, bytes, error, isAsked);
      } catch (refusal) {
        if (isAsked || !isRefusedSegment(refusal)) throw refusal;
        isAsked = true;
      }
      continue;
    }
    crash('after_insert');
    if (await isStored(clickhouse, name)) {
      crash('marker_found');
      insertSeconds.observe({ table: name.table, result: 'stored' }, (performance.now() - started) / 1000);
      insertRows.inc({ table: name.table }, stamped.rows - 1);
      return forget(options, segment, 'stored');
    }

    // ClickHouse logs a token before it publishes the rows: after a crash in between, it answers OK and has
    // nothing. While some insert of the segment runs, the rows may still come under the present token.
    if (await isInsertRunning(clickhouse, name)) throw new Error('another insert of this segment is running');
    if (await isStored(clickhouse, name)) continue;
    tokensBurnt.inc();
    log.warn({ segment, burnt: burnt + 1 }, 'token is burnt');
    await writeBurnt(redis, shard, segment, burnt + 1);
    crash('token_burnt');
  }
  throw new Error('the segment could not be stored');
}

async function readSegment(redis: Redis, shard: number, segment: Segment): Promise<Buffer | undefined> {
  const stored = await redis.getBuffer(shardKeys.segment(shard, segment));
  if (stored !== null) return rowsOfStored(stored);
  const outstanding = await redis.zscore(shardKeys.segments(shard), memberOf(segment));
  if (outstanding !== null) throw new Error('an outstanding segment has no bytes');
  return undefined;
}

async function forget(
  { redis, shard, crash }: StoreOptions,
  segment: Segment,
  result: StoreResult,
): Promise<StoreResult> {
  await runScript(
    redis,
    scripts.forget,
    [
      shardKeys.state(shard),
      shardKeys.segments(shard),
      shardKeys.segmentRows(shard),
      shardKeys.segment(shard, segment),
    ],
    [memberOf(segment)],
  );
  crash('segment_forgotten');
  return result;
}

async function readBurnt(redis: Redis, shard: number, segment: Segment): Promise<number> {
  return Number((await redis.hget(shardKeys.burntTokens(shard), memberOf(segment))) ?? 0);
}

/**
 * Two workers that find the same token burnt must go on with the same next one, so the number is written,
 * not incremented.
 */
async function writeBurnt(redis: Redis, shard: number, segment: Segment, burnt: number): Promise<void> {
  await redis.hset(shardKeys.burntTokens(shard), memberOf(segment), burnt);
}
