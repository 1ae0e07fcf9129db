// Late repeats: rows whose key an earlier segment has. Redis had forgotten the key when it accepted them, so the worker asks the
// index before it inserts them. As long as no key was ever forgotten, it asks nothing and does not read the rows.

import { lookUpKeys } from '../src/clickhouse/key-look-up.js';
import { countByEnvironment, keysOfRows } from '../src/clickhouse/row-keys.js';
import { withoutRows } from '../src/clickhouse/stamps.js';
import { tableOf } from '../src/contract/records.js';
import { keyLookupSeconds, keysLookedUp } from '../src/metrics.js';
import type { Segment } from '../src/redis/keys.js';
import type { ShardContext } from './context.js';
import type { Forgotten, KeyFilter } from './key-filter.js';

/** The index lacks some of the forgotten keys. It is being rebuilt; store the segment later. */
export class KeyIndexIncomplete extends Error {
  constructor() {
    super('the index of keys lacks keys that Redis has forgotten; it is being completed');
  }
}

type Checked = {
  /** The segment's bytes without repeats. */
  readonly bytes: Buffer;
  readonly repeats: number;
  /** Their number by environment. */
  readonly repeatsOf: ReadonlyMap<string, number>;
};

const noRepeats = { repeats: 0, repeatsOf: new Map<string, number>() } as const;

/**
 * Removes from a segment's bytes the rows whose key another segment stored. Every call for a segment removes the same rows: rows
 * whose key the segment itself owns stay. Rejects with KeyIndexIncomplete if the index cannot tell.
 */
export async function withoutLateRepeats(
  { clickhouse, shard, keyFilter }: Pick<ShardContext, 'clickhouse' | 'shard'> & { keyFilter?: KeyFilter },
  segment: Segment,
  bytes: Buffer,
  forgotten: Forgotten,
): Promise<Checked> {
  if (forgotten.to === 0n) return { bytes, ...noRepeats };
  const found = keysOfRows(bytes);
  const keys = keyFilter?.candidates(found, forgotten) ?? found;
  if (keys.count === 0) return { bytes, ...noRepeats };
  const started = performance.now();
  const observe = (result: 'answered' | 'incomplete' | 'failed') =>
    keyLookupSeconds.observe({ result }, (performance.now() - started) / 1000);
  const table = tableOf(segment.table);
  const { indexedTo, ownerOf } = await lookUpKeys(clickhouse, shard, table, keys).catch((error: unknown) => {
    observe('failed');
    throw error;
  });
  const own = BigInt(segment.number);
  // Keys of later segments do not matter. The index ends before the oldest waiting segment, so it need only reach up to this one.
  if (indexedTo < forgotten.to && indexedTo < own - 1n) {
    observe('incomplete');
    throw new KeyIndexIncomplete();
  }
  observe('answered');
  keysLookedUp.inc(keys.count);
  const repeats = new Set<number>();
  for (const [i, row] of keys.rows.entries()) {
    const owner = ownerOf(i);
    if (owner !== undefined && owner !== own) repeats.add(row);
  }
  if (repeats.size === 0) return { bytes, ...noRepeats };
  // A skipped record's key row is not counted: it belongs to no environment.
  const repeatsOf = countByEnvironment(bytes, repeats);
  const counted = [...repeatsOf.values()].reduce((sum, count) => sum + count, 0);
  return { bytes: withoutRows(bytes, repeats), repeats: counted, repeatsOf };
}
