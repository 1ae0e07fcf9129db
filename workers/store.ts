// Stores one sealed segment in ClickHouse exactly once, although its job may run any number of times, in several workers at
// once, or continue after a long stop. A segment is forgotten only when its marker row has been read. Late repeats, rows
// whose keys the index has for an earlier segment, are skipped. The token covers all rows, so it does not depend on that.

import { type ClickHouseClient, classifyFault } from '../src/clickhouse/client.js';
import { stampRows } from '../src/clickhouse/stamps.js';
import {
  insertSegment,
  isInsertRunning,
  isRefusedSegment,
  isStored,
  tokenOf,
} from '../src/clickhouse/store.js';
import { tableOf } from '../src/contract/records.js';
import type { CrashPoint } from '../src/crash-point.js';
import { describeError, type Log } from '../src/log.js';
import {
  insertRows,
  insertSeconds,
  queryableSeconds,
  recordsRepeatedLate,
  tokensBurnt,
} from '../src/metrics.js';
import type { Redis } from '../src/redis/client.js';
import { memberOf, type Segment, shardKeys } from '../src/redis/keys.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import { commitBatches } from '../src/tuning.js';
import type { Forgotten, KeyFilter } from './key-filter.js';
import { type Checked, KeyIndexIncomplete, withoutLateRepeats } from './late-repeats.js';
import { beginMarkerCheck } from './marker-check.js';
import { quarantine } from './quarantine.js';
import { rowsOfStored } from './segment-bytes.js';

export type StoreOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly shard: number;
  readonly crash: CrashPoint;
  readonly log: Log;
  /** Skips look-ups of keys that cannot be in the index. Without it every key is looked up. */
  readonly keyFilter?: KeyFilter;
  /** Told when a segment has to wait because the index of keys is not complete. */
  readonly onKeyIndexIncomplete?: () => void;
};

/**
 * `stored`: by this call. `found`: ClickHouse already had it. `gone`: another call stored and forgot it.
 * Rejects if it could not be stored now; call again later.
 */
export type StoreResult = 'stored' | 'found' | 'gone';

const attemptsMax = 10;

/**
 * Whether a job's first try may skip the look for the marker before its insert, which saves a third of its statements. If
 * another call had already stored so young a segment, ClickHouse would know the token and take nothing twice. That is not
 * true of an overdue segment: a power cut may have brought it back without its end (`appendfsync everysec`), and so under
 * another token than it was stored with. A clock that is ahead only costs the look. A clock that is behind by the age of
 * such a segment skips it wrongly.
 */
export function maySkipMarkerCheck(
  segment: Segment,
  triesStarted: number,
  nowMs: number,
  segmentAgeMsMax: number,
): boolean {
  const ageMs = nowMs - Number(segment.number) / 1000;
  return triesStarted <= 1 && ageMs >= 0 && ageMs < segmentAgeMsMax + commitBatches.overdueSegmentMsMax;
}

export async function storeSegment(
  options: StoreOptions,
  segment: Segment,
  skipsFirstCheck = false,
): Promise<StoreResult> {
  const { redis, clickhouse, shard, crash, log } = options;
  const name = { table: tableOf(segment.table), number: segment.number };
  /** Redis was asked again, after ClickHouse refused what was read from a Redis that was emptied since. */
  let isExempt = false;

  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    const assertFresh = beginMarkerCheck();
    const read = await readSegment(redis, shard, segment);
    if (read === undefined) {
      // A worker that was paused for long may have noted a burnt token after the segment was forgotten.
      await redis.hdel(shardKeys.burntTokens(shard), memberOf(segment));
      return 'gone';
    }
    const { bytes, forgotten } = read;
    crash('segment_read');
    const checksMarker = !skipsFirstCheck || attempt > 0;
    if (checksMarker && (await isStored(clickhouse, name))) return forget(options, segment, 'found');

    const burnt = await readBurnt(redis, shard, segment);
    const checked = await check(options, segment, bytes, forgotten);
    await noteLateRepeats(redis, shard, segment, checked.repeatsOf);
    crash('keys_looked_up');
    const stamped = stampRows(checked.bytes);
    const started = performance.now();
    crash('before_insert');
    assertFresh();
    try {
      await insertSegment(clickhouse, segment, stamped.bytes, tokenOf(name, bytes, burnt), isExempt);
    } catch (error) {
      insertSeconds.observe({ table: name.table, result: 'failed' }, (performance.now() - started) / 1000);
      if (isRefusedSegment(error) && !isExempt) {
        isExempt = true;
        continue;
      }
      if (classifyFault(error) !== 'poison') throw error;
      log.warn({ segment, error: describeError(error) }, 'clickhouse refuses rows of a segment');
      try {
        await quarantine(
          options,
          segment,
          { bytes: checked.bytes, lengthRead: bytes.length, repeats: checked.repeats },
          error,
          isExempt,
        );
      } catch (refusal) {
        if (isExempt || !isRefusedSegment(refusal)) throw refusal;
        isExempt = true;
      }
      continue;
    }
    crash('after_insert');
    if (await isStored(clickhouse, name)) {
      crash('marker_found');
      insertSeconds.observe({ table: name.table, result: 'stored' }, (performance.now() - started) / 1000);
      insertRows.inc({ table: name.table }, stamped.rows - 1);
      queryableSeconds.set(Math.max(0, Date.now() - Number(segment.number) / 1000) / 1000);
      if (checked.repeats > 0) recordsRepeatedLate.inc({ table: name.table }, checked.repeats);
      return forget(options, segment, 'stored');
    }

    // ClickHouse logs a token before it publishes the rows: after a crash in between, it answers OK and has
    // nothing. While some insert of the segment runs, the rows may still come under the present token.
    if (await isInsertRunning(clickhouse, name)) throw new Error('another insert of this segment is running');
    if (await isStored(clickhouse, name, true)) continue;
    tokensBurnt.inc();
    log.warn({ segment, burnt: burnt + 1 }, 'token is burnt');
    await writeBurnt(redis, shard, segment, burnt + 1);
    crash('token_burnt');
  }
  throw new Error('the segment could not be stored');
}

async function check(
  options: StoreOptions,
  segment: Segment,
  bytes: Buffer,
  forgotten: Forgotten,
): Promise<Checked> {
  try {
    return await withoutLateRepeats(options, segment, bytes, forgotten);
  } catch (error) {
    if (error instanceof KeyIndexIncomplete) options.onKeyIndexIncomplete?.();
    throw error;
  }
}

type Read = { readonly bytes: Buffer; readonly forgotten: Forgotten };

/**
 * What was forgotten is read after the segment was sealed, and it is noted before anything is forgotten. So whatever Redis
 * had forgotten when it accepted the rows is known here. What a recovery freed since does not count (`redis/free-keys-4.lua`).
 */
async function readSegment(redis: Redis, shard: number, segment: Segment): Promise<Read | undefined> {
  const fields = ['keys_forgotten_to', 'keys_generation', 'keys_freed_to', 'keys_forgotten_before'];
  const [stored, [forgottenTo, generation, freedTo, before]] = await Promise.all([
    redis.getBuffer(shardKeys.segment(shard, segment)),
    redis.hmget(shardKeys.state(shard), ...fields) as Promise<(string | null)[]>,
  ]);
  const to = BigInt(segment.number) <= BigInt(freedTo ?? 0) ? before : forgottenTo;
  if (stored !== null) {
    // Redis was emptied since the bytes were read.
    if (to == null) throw new Error('it is not known which keys were forgotten');
    return {
      bytes: await rowsOfStored(stored),
      forgotten: { to: BigInt(to), generation: generation ?? null },
    };
  }
  const outstanding = await redis.zscore(shardKeys.segments(shard), memberOf(segment));
  if (outstanding !== null) throw new Error('an outstanding segment has no bytes');
  return undefined;
}

/** Counts repeats in the ledger. To be called before the rest is stored: then nobody looks for them again. */
async function noteLateRepeats(
  redis: Redis,
  shard: number,
  segment: Segment,
  repeatsOf: ReadonlyMap<string, number>,
): Promise<void> {
  if (repeatsOf.size === 0) return;
  const minute = Math.floor(Number(segment.number) / 60_000_000);
  const entries = [...repeatsOf].flatMap(([appId, count]) => [
    `${appId} ${tableOf(segment.table)} late_repeats ${segment.number}`,
    count,
  ]);
  const keys = [shardKeys.segments(shard), shardKeys.ledgerMinutes(shard), shardKeys.ledger(shard, minute)];
  await runScript(redis, scripts.noteLateRepeats, keys, [memberOf(segment), minute, ...entries]);
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
 * Two workers that find the same token burnt must continue with the same next one, so the number is written, not
 * incremented.
 */
async function writeBurnt(redis: Redis, shard: number, segment: Segment, burnt: number): Promise<void> {
  await runScript(redis, scripts.burnToken, [shardKeys.burntTokens(shard)], [memberOf(segment), burnt]);
}
