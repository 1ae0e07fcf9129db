// The check that the books balance, which runs by itself: what was stored lately, then what is older again, never with more than a
// hundredth of a core. What differs is kept in Redis until it does not differ any more.

import { readRows } from '../../clickhouse/answers.js';
import { ledgerTable } from '../../clickhouse/ledger-table.js';
import { ledger } from '../../contract/limits.js';
import type { Log } from '../../log.js';
import { ledgerDifferences, ledgerUncheckedSeconds } from '../../metrics.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { takeTurn } from '../../redis/lease.js';
import { readTime } from '../../registry/registry.js';
import { ledgerChecks } from '../../tuning.js';
import { type Difference, findDifferences, type Minutes, type Side } from './balance.js';
import {
  type CheckOptions,
  confirm,
  type FoundDifference,
  findUnwritten,
  readSettled,
  sidesOf,
  timeOf,
} from './check.js';

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
