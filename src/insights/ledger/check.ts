// The check that the books balance, which runs by itself: what was stored lately, then what is older again, never with more than a
// hundredth of a core. What differs is kept in Redis until it does not differ any more.

import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { ledgerTable, readVoids } from '../../clickhouse/ledger-table.js';
import { reachableServers, serversOf } from '../../clickhouse/servers.js';
import { ledger } from '../../contract/limits.js';
import type { Log } from '../../log.js';
import { ledgerDifferences, ledgerUncheckedSeconds } from '../../metrics.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys, shardKeys, shardOf } from '../../redis/keys.js';
import { takeTurn } from '../../redis/lease.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { readTime } from '../../registry/registry.js';
import { ledgerChecks, ledgerWrites } from '../../tuning.js';
import { type Difference, findDifferences, type Minutes, type Side, without } from './balance.js';
import { dayOf, minuteOfSegment } from './write.js';

export type CheckOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly shards: number;
  readonly epoch: string;
};

/** As it is kept and shown. */
export type FoundDifference = Omit<Difference, 'minute' | 'kind'> & {
  /** ISO 8601, UTC. */
  readonly minute: string;
  /** The kind of the records; `unwritten` where ClickHouse has lost what was counted of all environments. */
  readonly kind: Difference['kind'] | 'unwritten';
};

/** The servers that answer, with those of their shards that are not being moved. */
export async function sidesOf({ clickhouse, shards }: CheckOptions): Promise<(Side & { number: number })[]> {
  const servers = serversOf(clickhouse);
  const there = await reachableServers(servers);
  const all = Array.from({ length: shards }, (_, shard) => shard);
  return servers.all.flatMap((server, number) => {
    const own = all.filter((shard) => servers.numberOf(shard) === number && !servers.isUnsettled(shard));
    if (own.length === 0 || !there.has(number)) return [];
    return [{ home: clickhouse, server, number, shards: own, shardOf: (appId) => shardOf(appId, shards) }];
  });
}

/** The last minute up to which what these shards counted is written into the ledger. */
export async function readWritten(redis: Redis, shards: readonly number[]): Promise<number> {
  let end = Math.floor(((await readTime(redis)) - ledgerWrites.afterMs) / 60_000);
  for (const shard of shards)
    for (const minute of await redis.smembers(shardKeys.ledgerMinutes(shard)))
      end = Math.min(end, Number(minute));
  return end - 1;
}

/** The last minute up to which everything that these shards accepted is stored, too. */
export async function readSettled(
  { redis, epoch }: CheckOptions,
  shards: readonly number[],
): Promise<number> {
  let last = await readWritten(redis, shards);
  for (const shard of shards) {
    const keys = [shardKeys.state(shard), shardKeys.segments(shard)];
    const oldest = await runScript(redis, scripts.oldestOutstanding, keys, [epoch]);
    if (oldest === null) return 0;
    if (oldest !== '') last = Math.min(last, minuteOfSegment(String(oldest)) - 1);
  }
  return last;
}

/** Differences that were found in several looks in a row. `pause`: between two. */
export async function confirm(
  side: Side,
  minutes: Minutes,
  pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms)),
): Promise<Difference[]> {
  let found = await findDifferences(side, minutes);
  for (let look = 1; look < ledgerChecks.looks && found.length > 0; look++) {
    await pause(ledgerChecks.looksEveryMs);
    const before = new Set(found.map((each) => JSON.stringify(each)));
    const span = { from: Math.min(...found.map(minuteOf)), to: Math.max(...found.map(minuteOf)) };
    found = (await findDifferences(side, span)).filter((each) => before.has(JSON.stringify(each)));
  }
  return found;
}

const minuteOf = ({ minute }: { readonly minute: number }) => minute;

/** Minutes that ClickHouse had of the ledger and has no more, with the records that it lacks. */
export async function findUnwritten({ redis, clickhouse, shards }: CheckOptions, { from, to }: Minutes) {
  const sums = new Map<number, number>();
  for (let day = dayOf(from); day <= dayOf(to); day++)
    for (let shard = 0; shard < shards; shard++)
      for (const [minute, records] of Object.entries(await redis.hgetall(shardKeys.ledgerSums(shard, day))))
        sums.set(Number(minute), (sums.get(Number(minute)) ?? 0) + Number(records));
  const rows = await readRows<{ at: number; records: number }>(clickhouse, {
    query: `SELECT toUInt32(intDiv(toUnixTimestamp(minute), 60)) AS at, toFloat64(sum(records)) AS records
      FROM ${ledgerTable} FINAL WHERE term = 'accepted' AND minute >= {from:UInt32} AND minute < {end:UInt32}
        AND toStartOfHour(minute) >= toStartOfHour(toDateTime({from:UInt32}, 'UTC'))
      GROUP BY at`,
    query_params: { from: from * 60, end: (to + 1) * 60 },
    clickhouse_settings: { max_threads: 1 },
  });
  const written = new Map(rows.map(({ at, records }) => [at, records]));
  const voids = await readVoids(clickhouse);
  return [...sums].flatMap(([minute, records]) => {
    const lacks = records - (written.get(minute) ?? 0);
    const counts = without({ from: minute, to: minute }, voids).length > 0 && minute >= from && minute <= to;
    return lacks > 0 && counts ? [{ minute, records: lacks }] : [];
  });
}

/** Makes the next look, if it is time for one. To be called again and again, by several workers. */
export async function checkIfDue(options: CheckOptions & { readonly log: Log }): Promise<void> {
  const { redis } = options;
  if (!(await takeTurn(redis, registryKeys.ledgerCheckTurn, ledgerChecks.everyMsMin))) return;
  const noted = await redis.hgetall(registryKeys.ledgerChecked);
  const nowMs = await readTime(redis);
  const restsUntilMs = Number(noted.rests_until_ms ?? 0);
  // It may be long if Redis's clock was set back.
  if (restsUntilMs > nowMs && restsUntilMs < nowMs + ledgerChecks.recentEveryMs) return;
  const startedAt = performance.now();
  let pausedMs = 0;
  const pause = async (ms: number) => {
    pausedMs += ms;
    await new Promise<void>((resolve) => setTimeout(resolve, ms));
  };
  const done = await lookNext({ ...options, pause }, noted, nowMs);
  const rest = Math.ceil((performance.now() - startedAt - pausedMs) * ledgerChecks.restFactor);
  const isShort = done.recent === undefined && done.old === undefined;
  const restMs = isShort ? Math.min(rest, ledgerChecks.shortRestMsMax) : rest;
  await redis.hset(registryKeys.ledgerChecked, { ...done, rests_until_ms: String(nowMs + restMs) });
}

/** What is noted of looks: `new <server>`, the last minute that was looked at; `last`, `recent` and `old`, when that was done; `month`. */
type Noted = Readonly<Record<string, string>>;

type LookOptions = CheckOptions & { readonly log: Log; readonly pause: (ms: number) => Promise<void> };

/** What is new first, then what differs, then what is older. Settles with what to note. */
async function lookNext(options: LookOptions, noted: Noted, nowMs: number): Promise<Noted> {
  const sides = await sidesOf(options);
  const done: Record<string, string> = {};
  const end = Math.floor(nowMs / 60_000);
  for (const side of sides) {
    const settled = await readSettled(options, side.shards);
    const from = Number(noted[`new ${side.number}`] ?? settled - ledgerChecks.newMinutesMax) + 1;
    const to = Math.min(settled, from + ledgerChecks.newMinutesMax - 1);
    if (to < from) continue;
    await keep(options, await confirm(side, { from, to }, options.pause));
    done[`new ${side.number}`] = String(to);
  }
  await lookAgain(options, sides);
  if (Object.keys(done).length > 0) return done;

  const since = (what: 'last' | 'recent' | 'old') => nowMs - Number(noted[what] ?? 0);
  const settledOf = async (side: Side) => readSettled(options, side.shards);
  const lookBack = async (minutes: number) => {
    for (const side of sides) {
      const to = await settledOf(side);
      await keep(options, await confirm(side, { from: to - minutes, to }, options.pause));
    }
    await keepUnwritten(options, { from: end - minutes, to: end });
  };
  if (since('recent') >= ledgerChecks.recentEveryMs) {
    await lookBack(ledgerChecks.recentMinutes);
    return { recent: String(nowMs), last: String(nowMs) };
  }
  if (since('last') >= ledgerChecks.lastEveryMs) {
    await lookBack(ledgerChecks.lastMinutes);
    return { last: String(nowMs) };
  }
  if (since('old') < ledgerChecks.oldEveryMs) return {};
  const month = await nextMonth(options, noted.month);
  if (month === undefined) return { old: String(nowMs) };
  for (const side of sides) {
    const to = Math.min(month.to, await settledOf(side));
    await keep(options, await confirm(side, { from: month.from, to }, options.pause));
  }
  return { old: String(nowMs), month: String(month.from) };
}

/** The month after the one that was looked at last, of those in the ledger; after the last one the first. */
async function nextMonth({ clickhouse }: CheckOptions, last = '0'): Promise<Minutes | undefined> {
  const months = await readRows<{ from: number; to: number }>(clickhouse, {
    query: `SELECT toUInt32(intDiv(toUnixTimestamp(toDateTime(month, 'UTC')), 60)) AS from,
        toUInt32(intDiv(toUnixTimestamp(toDateTime(month + INTERVAL 1 MONTH, 'UTC')), 60)) - 1 AS to
      FROM (SELECT DISTINCT toStartOfMonth(minute) AS month FROM ${ledgerTable} WHERE term = 'accepted') ORDER BY from`,
  });
  return months.find(({ from }) => from > Number(last)) ?? months[0];
}

const nameOf = ({ app_id, kind, minute }: FoundDifference) => `${app_id} ${kind} ${minute}`;
const timeOf = (minute: number) => new Date(minute * 60_000).toISOString();

/** Keeps differences, and says each once in the log. */
async function keep(
  { redis, log }: CheckOptions & { readonly log: Log },
  found: readonly (Omit<Difference, 'kind'> & Pick<FoundDifference, 'kind'>)[],
): Promise<void> {
  for (const { app_id, kind, minute, records } of found) {
    if ((await redis.hlen(registryKeys.ledgerDifferences)) >= ledger.differencesMax) return;
    const difference: FoundDifference = { app_id, kind, minute: timeOf(minute), records };
    const isNew = await redis.hset(
      registryKeys.ledgerDifferences,
      nameOf(difference),
      JSON.stringify(difference),
    );
    if (isNew === 1) {
      const what = { environment: app_id, kind, minute: difference.minute, missing: records };
      log.error(what, 'the books do not balance: records are missing, or too many');
    }
  }
}

async function keepUnwritten(options: CheckOptions & { readonly log: Log }, minutes: Minutes): Promise<void> {
  const found = await findUnwritten(options, minutes);
  await keep(
    options,
    found.map((each) => ({ ...each, app_id: '', kind: 'unwritten' as const })),
  );
}

/** Looks again at what differs, and forgets what does not any more. */
async function lookAgain(options: CheckOptions, sides: readonly Side[]): Promise<void> {
  const known = await readDifferences(options.redis);
  for (const difference of known) {
    const minute = Date.parse(difference.minute) / 60_000;
    const span = { from: minute, to: minute };
    const side = sides.find(({ shards, shardOf }) => shards.includes(shardOf(difference.app_id)));
    const isThere =
      difference.kind === 'unwritten'
        ? (await findUnwritten(options, span)).length > 0
        : side === undefined ||
          (await findDifferences(side, span)).some(
            ({ app_id, kind }) => app_id === difference.app_id && kind === difference.kind,
          );
    if (!isThere) await options.redis.hdel(registryKeys.ledgerDifferences, nameOf(difference));
  }
}

/** The differences that were found and are still there. */
export async function readDifferences(redis: Redis): Promise<FoundDifference[]> {
  const texts = await redis.hvals(registryKeys.ledgerDifferences);
  return texts.map((text) => JSON.parse(text) as FoundDifference);
}

/** Sets the gauges of the ledger from Redis. */
export async function observeLedger(redis: Redis): Promise<void> {
  const noted = await redis.hgetall(registryKeys.ledgerChecked);
  const minutes = Object.entries(noted).flatMap(([name, at]) =>
    name.startsWith('new ') ? [Number(at)] : [],
  );
  const nowMinute = (await readTime(redis)) / 60_000;
  ledgerUncheckedSeconds.set(
    minutes.length === 0 ? 0 : Math.max(0, nowMinute - Math.min(...minutes) - 1) * 60,
  );
  ledgerDifferences.set(await redis.hlen(registryKeys.ledgerDifferences));
}
