// Checks regularly that the books balance: first the records that were stored recently, then older ones again, never with more than a
// hundredth of a core. Differences are kept in Redis until they are gone.

import { readRows } from '../../clickhouse/answers.js';
import { ledgerTable, type Minutes, minuteOf } from '../../clickhouse/ledger-table.js';
import { ledger } from '../../contract/limits.js';
import type { Log } from '../../log.js';
import { ledgerDifferences, ledgerUncheckedSeconds } from '../../metrics.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { takeTurn } from '../../redis/lease.js';
import { readTime } from '../../registry/registry.js';
import { ledgerChecks } from '../../tuning.js';
import { findDifferences, type Side } from './balance.js';
import {
  type AnyDifference,
  type CheckOptions,
  confirm,
  type FoundDifference,
  findUnwritten,
  readSettled,
  sidesOf,
  timeOf,
} from './check.js';

/**
 * Makes the checks that are due. To be called regularly, by several workers. New records are in the parts of the last minutes, so checking
 * them is cheap. Older records may be in parts that span months. So each kind of check has its own rests.
 */
export async function checkIfDue(options: CheckOptions & { readonly log: Log }): Promise<void> {
  const { redis } = options;
  if (!(await takeTurn(redis, registryKeys.ledgerCheckTurn, ledgerChecks.everyMsMin))) return;
  const progress = await redis.hgetall(registryKeys.ledgerChecked);
  await checkAndRest(options, progress, 'rests_new', checkNew, ledgerChecks.newRestMsMax);
  await checkAndRest(options, progress, 'rests_older', checkOlder, ledgerChecks.oldEveryMs);
}

/**
 * How far the checks have got. `new <shard>`: the last minute that was checked there. `last`, `recent`, `old`: when these checks were made
 * last. `month`: the last month that was checked. Further fields: until when a kind of check rests.
 */
type Progress = Readonly<Record<string, string>>;

type PassOptions = CheckOptions & {
  readonly log: Log;
  readonly progress: Progress;
  readonly nowMs: number;
  readonly pause: (ms: number) => Promise<void>;
};

/** Makes a check unless its kind rests, and then lets it rest. It rests after a failure too, which may have cost as much. */
async function checkAndRest(
  options: CheckOptions & { readonly log: Log },
  progress: Progress,
  rests: string,
  check: (options: PassOptions) => Promise<Progress>,
  restMsMax: number,
): Promise<void> {
  const nowMs = await readTime(options.redis);
  const restsUntilMs = Number(progress[rests] ?? 0);
  // A rest longer than the maximum means that Redis's clock was set back.
  if (restsUntilMs > nowMs && restsUntilMs <= nowMs + restMsMax) return;
  const startedAt = performance.now();
  let pausedMs = 0;
  const pause = async (ms: number) => {
    pausedMs += ms;
    await new Promise<void>((resolve) => setTimeout(resolve, ms));
  };
  let done: Progress = {};
  try {
    done = await check({ ...options, progress, nowMs, pause });
  } finally {
    const costMs = performance.now() - startedAt - pausedMs;
    const restMs = Math.min(Math.ceil(costMs * ledgerChecks.restFactor), restMsMax);
    await options.redis.hset(registryKeys.ledgerChecked, { ...done, [rests]: String(nowMs + restMs) });
  }
}

async function checkNew(options: PassOptions): Promise<Progress> {
  const done: Record<string, string> = {};
  for (const side of await sidesOf(options)) {
    const settled = await readSettled(options, side.shards);
    const begin = Math.max(0, settled - ledgerChecks.newMinutesMax);
    const from =
      1 + Math.min(...side.shards.map((shard) => Number(options.progress[`new ${shard}`] ?? begin)));
    const to = Math.min(settled, from + ledgerChecks.newMinutesMax - 1);
    if (to < from) continue;
    await saveNew(options, await confirm(side, { from, to }, options.pause));
    for (const shard of side.shards) done[`new ${shard}`] = String(to);
  }
  return done;
}

/** Compares known differences first, then what was last checked the longest time ago. Settles with the new progress. */
async function checkOlder(options: PassOptions): Promise<Progress> {
  const { progress, nowMs } = options;
  const sides = await sidesOf(options);
  await recheckKnown(options, sides);
  const since = (what: 'last' | 'recent' | 'old') => nowMs - Number(progress[what] ?? 0);
  const compare = async ({ from, to }: Minutes) => {
    for (const side of sides) {
      const settled = await readSettled(options, side.shards);
      await saveNew(options, await confirm(side, { from, to: Math.min(to, settled) }, options.pause));
    }
  };
  const checkBack = async (minutes: number) => {
    const to = Math.floor(nowMs / 60_000);
    await compare({ from: to - minutes, to });
    await saveNew(options, await findUnwritten(options, { from: to - minutes, to }));
  };
  if (since('recent') >= ledgerChecks.recentEveryMs) {
    await checkBack(ledgerChecks.recentMinutes);
    return { recent: String(nowMs), last: String(nowMs) };
  }
  if (since('last') >= ledgerChecks.lastEveryMs) {
    await checkBack(ledgerChecks.lastMinutes);
    return { last: String(nowMs) };
  }
  if (since('old') < ledgerChecks.oldEveryMs) return {};
  const month = await nextMonth(options, progress.month);
  if (month === undefined) return { old: String(nowMs) };
  await compare(month);
  return { old: String(nowMs), month: String(month.from) };
}

/** The month of the ledger after the one that was checked last; after the latest month, the first one again. */
async function nextMonth({ clickhouse }: CheckOptions, last = '0'): Promise<Minutes | undefined> {
  const months = await readRows<{ from: number; to: number }>(clickhouse, {
    query: `SELECT ${minuteOf("toDateTime(month, 'UTC')")} AS from,
        ${minuteOf("toDateTime(month + INTERVAL 1 MONTH, 'UTC')")} - 1 AS to
      FROM (SELECT DISTINCT toStartOfMonth(minute) AS month FROM ${ledgerTable} WHERE term = 'accepted') ORDER BY from`,
  });
  return months.find(({ from }) => from > Number(last)) ?? months[0];
}

const nameOf = ({ app_id, kind, minute }: FoundDifference) => `${app_id} ${kind} ${minute}`;

/** Saves differences, and logs each new one. */
async function saveNew(
  { redis, log }: CheckOptions & { readonly log: Log },
  found: readonly AnyDifference[],
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
      const entry = { environment: app_id, kind, minute: difference.minute, missing: records };
      log.error(entry, 'the books do not balance: records are missing, or too many');
    }
  }
}

/** Checks some minutes with known differences again, and removes differences that are gone. */
async function recheckKnown(options: CheckOptions, sides: readonly Side[]): Promise<void> {
  const groups = new Map<string, { side: Side | undefined; minute: number; known: FoundDifference[] }>();
  for (const difference of await readDifferences(options.redis)) {
    const side = sides.find(
      ({ shards, shardOf }) => difference.app_id !== '' && shards.includes(shardOf(difference.app_id)),
    );
    // The server that has it does not answer.
    if (side === undefined && difference.app_id !== '') continue;
    const minute = Date.parse(difference.minute) / 60_000;
    const name = `${side?.shards.join() ?? ''} ${minute}`;
    const group = groups.get(name) ?? { side, minute, known: [] };
    group.known.push(difference);
    groups.set(name, group);
  }
  // In random order, so that over time each has its turn.
  const some = [...groups.values()].sort(() => Math.random() - 0.5).slice(0, ledgerChecks.minutesAgainMax);
  for (const { side, minute, known } of some) {
    const span = { from: minute, to: minute };
    const now = await (side === undefined ? findUnwritten(options, span) : findDifferences(side, span));
    const found = new Set(now.map(({ app_id, kind }) => `${app_id} ${kind}`));
    const gone = known.filter(({ app_id, kind }) => !found.has(`${app_id} ${kind}`)).map(nameOf);
    if (gone.length > 0) await options.redis.hdel(registryKeys.ledgerDifferences, ...gone);
  }
}

/** The known differences. */
export async function readDifferences(redis: Redis): Promise<FoundDifference[]> {
  const texts = await redis.hvals(registryKeys.ledgerDifferences);
  return texts.map((text) => JSON.parse(text) as FoundDifference);
}

/** Sets the gauges of the ledger from Redis. */
export async function observeLedger(redis: Redis): Promise<void> {
  const progress = await redis.hgetall(registryKeys.ledgerChecked);
  const minutes = Object.entries(progress).flatMap(([name, at]) =>
    name.startsWith('new ') ? [Number(at)] : [],
  );
  const nowMinute = (await readTime(redis)) / 60_000;
  ledgerUncheckedSeconds.set(
    minutes.length === 0 ? 0 : Math.max(0, nowMinute - Math.min(...minutes) - 1) * 60,
  );
  ledgerDifferences.set(await redis.hlen(registryKeys.ledgerDifferences));
}
