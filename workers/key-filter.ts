// A Bloom filter of a shard's keys in the worker's memory. It immediately rules out nearly all keys that are not in the index. The
// rest is looked up in ClickHouse, and so is every key while the filter is loading. Asking ClickHouse about every new key takes
// twice as much CPU at 100 million keys as at 10 million; the filter does not.
//
// The filter may hold more keys than the index, never fewer: an index gets keys segment by segment and never loses any. A restored or
// rebuilt index may have other keys below its marker; it has another generation, for which the filter is loaded again.

import type { ClickHouseClient } from '../src/clickhouse/client.js';
import { countKeysOf, readKeyHashes, readMarkers } from '../src/clickhouse/key-index.js';
import { keyBytes, type RowKeys } from '../src/clickhouse/row-keys.js';
import type { Log } from '../src/log.js';
import { keysUnfiltered } from '../src/metrics.js';
import { keyIndex } from '../src/tuning.js';

/** What Redis said when the segment was read: up to which segment it may have forgotten keys, and the generation of their index. */
export type Forgotten = { readonly to: bigint; readonly generation: string | null };

export type KeyFilter = {
  /**
   * Which of the keys may be in the index: all of them while the filter lacks forgotten keys or has another generation; it then
   * starts to load what it lacks.
   */
  candidates(keys: RowKeys, forgotten: Forgotten): RowKeys;
  /** Settles when a running load has ended. */
  loaded(): Promise<void>;
};

export function createKeyFilter(
  clickhouseNow: () => ClickHouseClient,
  shard: number,
  shards: number,
  log: Log,
): KeyFilter {
  let bits = createBits(0, shards);
  let count = 0;
  let loadedTo = 0n;
  let generation: string | undefined;
  let loading: Promise<void> | undefined;

  async function load(): Promise<void> {
    const clickhouse = clickhouseNow();
    const marker = (await readMarkers(clickhouse)).get(shard);
    if (marker === undefined) return;
    const to = BigInt(marker.indexedTo);
    if (marker.generation === generation && to <= loadedTo) return;
    const isSame = marker.generation === generation;
    let from = isSame ? loadedTo : 0n;
    let keys = await countKeysOf(clickhouse, shard, from, to);
    if (!isSame || (count + keys > bits.keysMax && bits.canGrow)) {
      if (from > 0n) keys = await countKeysOf(clickhouse, shard, 0n, to);
      // The filter must not be used until it is loaded.
      generation = undefined;
      from = 0n;
      count = 0;
      bits = createBits((isSame ? keyIndex.filterGrowth : keyIndex.filterRoom) * keys, shards);
    }
    for await (const hashes of readKeyHashes(clickhouse, shard, from, to, keys)) {
      bits.add(hashes);
      count += hashes.length / 8;
    }
    // The table may have been exchanged while it was read.
    if ((await readMarkers(clickhouse)).get(shard)?.generation !== marker.generation) return;
    loadedTo = to;
    generation = marker.generation;
  }

  return {
    candidates: (keys, forgotten) => {
      if (generation === undefined || generation !== forgotten.generation || loadedTo < forgotten.to) {
        loading ??= load()
          .catch((error: unknown) => log.warn({ shard, error }, 'loading the filter of keys failed'))
          .finally(() => {
            loading = undefined;
          });
        keysUnfiltered.inc(keys.count);
        return keys;
      }
      const rows: number[] = [];
      const bytes = Buffer.allocUnsafe(keys.bytes.length);
      for (let i = 0; i < keys.count; i++) {
        const at = keyBytes * i;
        if (!bits.has(keys.bytes.readUInt32LE(at), keys.bytes.readUInt32LE(at + 4))) continue;
        keys.bytes.copy(bytes, keyBytes * rows.length, at, at + keyBytes);
        rows.push(keys.rows[i] as number);
      }
      return { rows, bytes: bytes.subarray(0, keyBytes * rows.length), count: rows.length };
    },
    loaded: async () => loading,
  };
}

/** Blocks of 256 bits, of which a key sets one in each of eight words. */
function createBits(keys: number, shards: number) {
  const blocksMax = Math.floor(keyIndex.filterBytesMax / shards / blockBytes);
  const blocks = Math.max(
    1,
    Math.min(Math.ceil((keys * keyIndex.filterBitsPerKey) / (8 * blockBytes)), blocksMax),
  );
  const words = new Uint32Array((blocks * blockBytes) / 4);
  const blockOf = (low: number) => 8 * (low % blocks);
  return {
    keysMax: Math.floor((blocks * blockBytes * 8) / keyIndex.filterBitsPerKey),
    canGrow: blocks < blocksMax,
    add: (hashes: Buffer) => {
      for (let at = 0; at < hashes.length; at += 8) {
        const block = blockOf(hashes.readUInt32LE(at));
        const high = hashes.readUInt32LE(at + 4);
        for (let i = 0; i < 8; i++) {
          words[block + i] =
            (words[block + i] as number) | (1 << (Math.imul(high, salts[i] as number) >>> 27));
        }
      }
    },
    has: (low: number, high: number) => {
      const block = blockOf(low);
      for (let i = 0; i < 8; i++) {
        if (((words[block + i] as number) & (1 << (Math.imul(high, salts[i] as number) >>> 27))) === 0)
          return false;
      }
      return true;
    },
  };
}

const blockBytes = 32;
/** Odd multipliers, which give each word other bits. @see https://github.com/apache/parquet-format/blob/master/BloomFilter.md */
const salts = [
  0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31,
];
