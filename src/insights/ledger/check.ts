// Which minutes can be compared on which servers, and what differs in them. Differences are confirmed by several comparisons, and by what
// Redis knows that ClickHouse once had.

import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import {
  isWithin,
  ledgerTable,
  type Minutes,
  minuteOf,
  paramsOf,
  readVoids,
} from '../../clickhouse/ledger-table.js';
import { reachableServers, serversOf } from '../../clickhouse/servers.js';
import { readOutstanding } from '../../redis/backlog.js';
import type { Redis } from '../../redis/client.js';
import { shardKeys, shardOf } from '../../redis/keys.js';
import { readTime } from '../../registry/registry.js';
import { ledgerChecks, ledgerWrites } from '../../tuning.js';
import { type Difference, findDifferences, type Side, without } from './balance.js';
import { dayOf, minuteOfSegment } from './write.js';

export type CheckOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly shards: number;
  readonly epoch: string;
};

/** A difference of records of one kind or, if ClickHouse has lost counts of all environments, of unwritten ones. */
export type AnyDifference = Omit<Difference, 'kind'> & { readonly kind: Difference['kind'] | 'unwritten' };

/** A difference as stored and shown. `minute`: ISO 8601, UTC. */
export type FoundDifference = Omit<AnyDifference, 'minute'> & { readonly minute: string };

/** The servers that answer, each with those of its shards that are not being moved. */
export async function sidesOf({ clickhouse, shards }: CheckOptions): Promise<Side[]> {
  const servers = serversOf(clickhouse);
  const reachable = await reachableServers(servers);
  const all = Array.from({ length: shards }, (_, shard) => shard);
  return servers.all.flatMap((server, number) => {
    const own = all.filter((shard) => servers.numberOf(shard) === number && !servers.isUnsettled(shard));
    if (own.length === 0 || !reachable.has(number)) return [];
    return [{ primary: clickhouse, server, shards: own, shardOf: (appId) => shardOf(appId, shards) }];
  });
}

/** The latest minute up to which ClickHouse has the counts of these shards. */
export async function readWritten(redis: Redis, shards: readonly number[]): Promise<number> {
  let end = Math.floor(((await readTime(redis)) - ledgerWrites.afterMs) / 60_000);
  for (const shard of shards)
    for (const minute of await redis.smembers(shardKeys.ledgerMinutes(shard)))
      end = Math.min(end, Number(minute));
  return end - 1;
}

/** The last minute up to which ClickHouse has all records that these shards accepted, together with their counts. */
export async function readSettled(
  { redis, epoch }: CheckOptions,
  shards: readonly number[],
): Promise<number> {
  let last = await readWritten(redis, shards);
  for (const shard of shards) {
    const found = await readOutstanding(redis, shard, epoch);
    if (found === undefined) return 0;
    if (found.oldest !== undefined) last = Math.min(last, minuteOfSegment(found.oldest) - 1);
  }
  return last;
}

/** The differences that several comparisons in a row have found. `pause`: waits between two comparisons. */
export async function confirm(
  side: Side,
  minutes: Minutes,
  pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms)),
): Promise<Difference[]> {
  let found = await findDifferences(side, minutes);
  for (let look = 1; look < ledgerChecks.looks && found.length > 0; look++) {
    await pause(ledgerChecks.looksEveryMs);
    const before = new Set(found.map((each) => JSON.stringify(each)));
    const minutesFound = found.map(({ minute }) => minute);
    const span = { from: Math.min(...minutesFound), to: Math.max(...minutesFound) };
    found = (await findDifferences(side, span)).filter((each) => before.has(JSON.stringify(each)));
  }
  return found;
}

/** Minutes of the ledger that ClickHouse had and has lost, with the records whose counts are missing. */
export async function findUnwritten(
  { redis, clickhouse, shards }: CheckOptions,
  { from, to }: Minutes,
): Promise<AnyDifference[]> {
  const sums = new Map<number, number>();
  for (let day = dayOf(from); day <= dayOf(to); day++)
    for (let shard = 0; shard < shards; shard++)
      for (const [minute, records] of Object.entries(await redis.hgetall(shardKeys.ledgerSums(shard, day))))
        sums.set(Number(minute), (sums.get(Number(minute)) ?? 0) + Number(records));
  const rows = await readRows<{ at: number; records: number }>(clickhouse, {
    query: `SELECT ${minuteOf()} AS at, toFloat64(sum(records)) AS records
      FROM ${ledgerTable} FINAL WHERE term = 'accepted' AND ${isWithin} GROUP BY at`,
    query_params: paramsOf({ from, to }),
    clickhouse_settings: { max_threads: 1 },
  });
  const written = new Map(rows.map(({ at, records }) => [at, records]));
  const voids = await readVoids(clickhouse);
  return [...sums].flatMap(([minute, records]) => {
    const missing = records - (written.get(minute) ?? 0);
    const counts = without({ from: minute, to: minute }, voids).length > 0 && minute >= from && minute <= to;
    return missing > 0 && counts ? [{ app_id: '', kind: 'unwritten', minute, records: missing }] : [];
  });
}

/** A minute as it is shown. */
export const timeOf = (minute: number) => new Date(minute * 60_000).toISOString();
