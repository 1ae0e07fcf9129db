// Stores one sealed segment in ClickHouse exactly once, although its job may run any number of times, in several workers at
// once, or resume after a long pause. Redis forgets a segment only after its marker row has been read. Late repeats, rows whose
// keys the index has for an earlier segment, are skipped. The token is made of all rows, so skipping some does not change it.

import { isPoison } from '../src/clickhouse/client.js';
import { stampRows } from '../src/clickhouse/stamps.js';
import {
  insertSegment,
  isInsertRunning,
  isRefusedSegment,
  isStored,
  tokenOf,
} from '../src/clickhouse/store.js';
import { tableOf } from '../src/contract/records.js';
import {
  insertSeconds,
  queryableSeconds,
  recordsRepeatedLate,
  rowsInserted,
  tokensBurnt,
} from '../src/metrics.js';
import type { Redis } from '../src/redis/client.js';
import { keysOfSegment, memberOf, type Segment, shardKeys } from '../src/redis/keys.js';
import { readOnReplicas } from '../src/redis/replicas.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import { createSpareBuffers } from '../src/spare-buffers.js';
import { commitBatches } from '../src/tuning.js';
import type { ShardContext } from './context.js';
import type { Forgotten, KeyFilter } from './key-filter.js';
import { withoutLateRepeats } from './late-repeats.js';
import { beginMarkerCheck } from './marker-check.js';
import { quarantine } from './quarantine.js';
import { rowsOfStored } from './segment-bytes.js';

export type StoreOptions = ShardContext & {
  /** Skips look-ups of keys that cannot be in the index. Without it every key is looked up. */
  readonly keyFilter?: KeyFilter;
};

/** `stored`: by this call. `found`: ClickHouse already had it. `gone`: another call stored and forgot it. */
export type StoreResult = 'stored' | 'found' | 'gone';

const attemptsMax = 10;
const MiB = 1024 * 1024;

/** For segments of the usual sizes with their stamps. */
const spares = createSpareBuffers({ bytesMin: MiB / 2, stepBytes: 2 * MiB, keptBytesMax: 16 * MiB });

/**
 * Whether a job's first try may insert without looking for the marker first, which saves a third of its statements. If another
 * call has already stored so young a segment, ClickHouse still knows its token and ignores the insert. An overdue segment needs
 * the check: a power cut may have brought it back without its end (`appendfsync everysec`), and so with another token than it was
 * stored with. A clock that is ahead only costs an unneeded check. A clock that is behind by the age of such a segment skips a
 * needed one.
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

/** Rejects if the segment could not be stored now, with KeyIndexIncomplete if it waits for the index of keys; call again later. */
export async function storeSegment(
  options: StoreOptions,
  segment: Segment,
  skipsFirstCheck = false,
): Promise<StoreResult> {
  const { redis, clickhouse, shard, crash, log } = options;
  const name = { table: tableOf(segment.table), number: segment.number };
  /** Set when a limit of ClickHouse has refused the rows, which may be from a Redis that was emptied since: they are read and sent again. */
  let isExempt = false;

  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    const assertFresh = beginMarkerCheck();
    // A former primary may go on appending to a segment that the next one has closed.
    const key = shardKeys.segment(shard, segment);
    const read = await readOnReplicas(redis, key, () => readSegment(redis, shard, segment));
    if (read === undefined) {
      // A worker that was paused for long may have written a burnt token after the segment was forgotten.
      await redis.hdel(shardKeys.burntTokens(shard), memberOf(segment));
      return 'gone';
    }
    const { bytes, forgotten } = read;
    crash('segment_read');
    const checksMarker = !skipsFirstCheck || attempt > 0;
    if (checksMarker && (await isStored(clickhouse, name))) return forget(options, segment, 'found');

    const burnt = Number((await redis.hget(shardKeys.burntTokens(shard), memberOf(segment))) ?? 0);
    const checked = await withoutLateRepeats(options, segment, bytes, forgotten);
    await countLateRepeats(redis, shard, segment, checked.repeatsOf);
    crash('keys_looked_up');
    const stamped = stampRows(checked.bytes, spares.take);
    const started = performance.now();
    crash('before_insert');
    assertFresh();
    try {
      await insertSegment(clickhouse, segment, stamped.bytes, tokenOf(name, bytes, burnt), isExempt);
    } catch (error) {
      insertSeconds.observe({ table: name.table, result: 'failed' }, (performance.now() - started) / 1000);
      try {
        if (isRefusedSegment(error) || !isPoison(error)) throw error;
        log.warn({ segment, error }, 'clickhouse refuses some rows of a segment');
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
      // ClickHouse has read all of it.
      spares.give(stamped.buffer);
      insertSeconds.observe({ table: name.table, result: 'stored' }, (performance.now() - started) / 1000);
      rowsInserted.inc({ table: name.table }, stamped.rows - 1);
      queryableSeconds.set(Math.max(0, Date.now() - Number(segment.number) / 1000) / 1000);
      if (checked.repeats > 0) recordsRepeatedLate.inc({ table: name.table }, checked.repeats);
      return forget(options, segment, 'stored');
    }

    // ClickHouse logs a token before it publishes the rows: after a crash in between, it answers OK without having the
    // rows. While an insert of the segment is running, the rows may still appear under the current token.
    if (await isInsertRunning(clickhouse, name)) throw new Error('another insert of this segment is running');
    if (await isStored(clickhouse, name, true)) continue;
    tokensBurnt.inc();
    log.warn({ segment, burnt: burnt + 1 }, 'a token of a segment is burnt');
    // Two workers that find the same token burnt must continue with the same next one: so the number is set, not incremented.
    const args = [memberOf(segment), burnt + 1];
    await runScript(redis, scripts.burnToken, [shardKeys.burntTokens(shard)], args);
    crash('token_burnt');
  }
  throw new Error('the segment could not be stored');
}

type Read = { readonly bytes: Buffer; readonly forgotten: Forgotten };

/**
 * Redis records which keys it forgets before it forgets them, and this reads that record after the segment was sealed. So it
 * includes all keys that were forgotten when the rows were accepted. Keys that a recovery freed since do not count
 * (`redis/free-keys-4.lua`).
 */
async function readSegment(redis: Redis, shard: number, segment: Segment): Promise<Read | undefined> {
  const fields = ['keys_forgotten_to', 'keys_generation', 'keys_freed_to', 'keys_forgotten_before'];
  const [stored, [forgottenTo, generation, freedTo, before]] = await Promise.all([
    redis.getBuffer(shardKeys.segment(shard, segment)),
    redis.hmget(shardKeys.state(shard), ...fields) as Promise<(string | null)[]>,
  ]);
  const to = BigInt(segment.number) <= BigInt(freedTo ?? 0) ? before : forgottenTo;
  if (stored !== null) {
    // Redis was emptied after the bytes were read.
    if (to == null) throw new Error('redis does not say which keys it has forgotten');
    return {
      bytes: await rowsOfStored(stored),
      forgotten: { to: BigInt(to), generation: generation ?? null },
    };
  }
  const outstanding = await redis.zscore(shardKeys.segments(shard), memberOf(segment));
  if (outstanding !== null) throw new Error('an outstanding segment has no bytes');
  return undefined;
}

/** Counts repeats in the ledger. Call it before the rest is stored: after that nothing looks for them again. */
async function countLateRepeats(
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
  await runScript(redis, scripts.forget, keysOfSegment(shard, segment), [memberOf(segment)]);
  crash('segment_forgotten');
  return result;
}
