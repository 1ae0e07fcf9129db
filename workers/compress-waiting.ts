// Compresses sealed segments that have waited for ClickHouse for some seconds, so that the backlog lasts longer while
// ClickHouse is unreachable. Nothing else changes: every reader decompresses the rows, so the segment keeps its token.

import { segmentsCompressed } from '../src/metrics.js';
import { keysOfSegment, segmentOfMember, shardKeys } from '../src/redis/keys.js';
import { takeTurn } from '../src/redis/lease.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import { waitingSegments } from '../src/tuning.js';
import type { ShardContext } from './context.js';
import { compressRows, isCompressed } from './segment-bytes.js';

export type CompressOptions = Pick<ShardContext, 'redis' | 'shard' | 'crash'> & {
  /** A monotonic clock in milliseconds. */
  readonly clockMs?: () => number;
};

/** The highest segment number at some time: every segment up to it has waited since then. */
type Seen = { readonly atMs: number; readonly number: string };

/**
 * Makes the function that a worker calls about once a second to compress a shard's waiting segments. Each call settles with the
 * number of segments that it compressed. Several workers take turns.
 */
export function createCompressor(options: CompressOptions): () => Promise<number> {
  const { redis, shard, crash } = options;
  const clockMs = options.clockMs ?? (() => performance.now());
  const outstanding = shardKeys.segments(shard);
  let seen: Seen[] = [];
  /** Segments up to this number are done. */
  let doneTo = '0';

  return async () => {
    const waitedTo = await highestThatWaited();
    if (waitedTo === undefined || Number(waitedTo) <= Number(doneTo)) return 0;
    if (!(await takeTurn(redis, shardKeys.compressing(shard), waitingSegments.turnMs))) return 0;
    const members = await redis.zrangebyscore(
      outstanding,
      `(${doneTo}`,
      waitedTo,
      'LIMIT',
      0,
      waitingSegments.perTurnMax,
    );
    let compressed = 0;
    let bytes = 0;
    for (const member of members) {
      const result = await compressOne(member);
      // An open segment is tried again.
      if (result === 'open') return compressed;
      doneTo = segmentOfMember(member).number;
      if (result === 'unchanged') continue;
      compressed += 1;
      bytes += result;
      if (bytes >= waitingSegments.bytesPerTurn) return compressed;
    }
    if (members.length < waitingSegments.perTurnMax) doneTo = waitedTo;
    return compressed;
  };

  async function highestThatWaited(): Promise<string | undefined> {
    const nowMs = clockMs();
    const [newest] = await redis.zrevrange(outstanding, 0, 0);
    const waited = seen.filter(({ atMs }) => nowMs - atMs >= waitingSegments.waitMs).at(-1);
    seen = seen.filter((one) => one === waited || nowMs - one.atMs < waitingSegments.waitMs);
    if (newest !== undefined) seen.push({ atMs: nowMs, number: segmentOfMember(newest).number });
    return waited?.number;
  }

  /**
   * Compresses a segment. Settles with its bytes before; `unchanged`: it is gone, already compressed or incompressible, or another worker
   * changed it.
   */
  async function compressOne(member: string): Promise<number | 'open' | 'unchanged'> {
    const segment = segmentOfMember(member);
    const key = shardKeys.segment(shard, segment);
    const rows = await redis.getBuffer(key);
    if (rows === null || isCompressed(rows)) return 'unchanged';
    const smaller = await compressRows(rows);
    if (smaller.length >= rows.length) return 'unchanged';
    const args = [member, rows.length, smaller, 0];
    const keys = keysOfSegment(shard, segment);
    const result = Number(await runScript(redis, scripts.replaceSegment, keys, args));
    if (result === -1) return 'open';
    if (result === 0) return 'unchanged';
    segmentsCompressed.inc();
    crash('segment_compressed');
    return rows.length;
  }
}
