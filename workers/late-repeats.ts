// Rows whose key an earlier segment has. Redis had forgotten the key when it accepted them, so the worker asks the index
// before it inserts them. While no key was ever forgotten, it asks nothing and does not read the rows.

import type { ClickHouseClient } from '../src/clickhouse/client.js';
import { lookUpKeys } from '../src/clickhouse/key-look-up.js';
import { countByEnvironment, keysOfRows } from '../src/clickhouse/row-keys.js';
import { withoutRows } from '../src/clickhouse/stamps.js';
import { tableOf } from '../src/contract/records.js';
import { keyLookupSeconds, keysLookedUp } from '../src/metrics.js';
import type { Segment } from '../src/redis/keys.js';
import type { Forgotten, KeyFilter } from './key-filter.js';

type Options = {
  readonly clickhouse: ClickHouseClient;
  readonly shard: number;
  /** Saves look-ups. Without a filter every key is looked up. */
  readonly keyFilter?: KeyFilter;
};

/** The index does not reach as far as keys were forgotten. It is being rebuilt; store the segment later. */
export class KeyIndexIncomplete extends Error {
  constructor() {
    super('the index of keys lacks keys that Redis has forgotten; it is being made');
  }
}

export type Checked = {
  /** The segment's bytes without repeats. */
  readonly bytes: Buffer;
  /** How many records they are. */
  readonly repeats: number;
  /** Their number by environment. */
  readonly repeatsOf: ReadonlyMap<string, number>;
};

const noRepeats = { repeats: 0, repeatsOf: new Map<string, number>() } as const;

/**
 * Takes out of a segment's bytes the rows whose key another segment stored. Every call for a segment takes out the same: a
 * key that the segment owns itself stays. Rejects with KeyIndexIncomplete if the index cannot tell.
 */
export async function withoutLateRepeats(
  { clickhouse, shard, keyFilter }: Options,
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
  // Keys of later segments do not matter: a segment that waits since before keys were forgotten holds up the index.
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
  // The key of a skipped record counts nowhere: it is of no environment.
  const repeatsOf = countByEnvironment(bytes, repeats);
  const counted = [...repeatsOf.values()].reduce((sum, count) => sum + count, 0);
  return { bytes: withoutRows(bytes, repeats), repeats: counted, repeatsOf };
}
