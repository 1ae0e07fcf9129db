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

/**
 * Makes the next looks, if it is time for them. To be called again and again, by several workers. What is new is in the parts of the last
 * minutes, so looking at it is cheap. What is older may be in parts with everything of months, so each of those looks has its rest.
 */
export async function checkIfDue(options: CheckOptions & { readonly log: Log }): Promise<void> {
  const { redis } = options;
  if (!(await takeTurn(redis, registryKeys.ledgerCheckTurn, ledgerChecks.everyMsMin))) return;
  const noted = await redis.hgetall(registryKeys.ledgerChecked);
  await lookAndRest(options, noted, 'rests_new', lookAtNew, ledgerChecks.newRestMsMax);
  await lookAndRest(options, noted, 'rests_older', lookAtOlder, ledgerChecks.oldEveryMs);
}

/**
 * What is noted of looks: `new <server>`, the last minute that was looked at; `last`, `recent` and `old`, when that was done; `month`;
 * until when looks rest.
 */
type Noted = Readonly<Record<string, string>>;

type LookOptions = CheckOptions & {
  readonly log: Log;
  readonly noted: Noted;
  readonly nowMs: number;
  readonly pause: (ms: number) => Promise<void>;
};

/** Makes a look unless it rests. It rests after a failure, too, since it may have cost as much. */
async function lookAndRest(
  options: CheckOptions & { readonly log: Log },
  noted: Noted,
  rests: string,
  look: (options: LookOptions) => Promise<Noted>,
  restMsMax: number,
): Promise<void> {
  const nowMs = await readTime(options.redis);
  const restsUntilMs = Number(noted[rests] ?? 0);
  // It is longer if Redis's clock was set back.
  if (restsUntilMs > nowMs && restsUntilMs <= nowMs + restMsMax) return;
  const startedAt = performance.now();
  let pausedMs = 0;
  const pause = async (ms: number) => {
    pausedMs += ms;
    await new Promise<void>((resolve) => setTimeout(resolve, ms));
  };
  let done: Noted = {};
  try {
    done = await look({ ...options, noted, nowMs, pause });
  } finally {
    const costMs = performance.now() - startedAt - pausedMs;
    const restMs = Math.min(Math.ceil(costMs * ledgerChecks.restFactor), restMsMax);
    await options.redis.hset(registryKeys.ledgerChecked, { ...done, [rests]: String(nowMs + restMs) });
  }
}

async function lookAtNew(options: LookOptions): Promise<Noted> {
  const done: Record<string, string> = {};
  for (const side of await sidesOf(options)) {
    const settled = await readSettled(options, side.shards);
    const from = Number(options.noted[`new ${side.number}`] ?? settled - ledgerChecks.newMinutesMax) + 1;
    const to = Math.min(settled, from + ledgerChecks.newMinutesMax - 1);
    if (to < from) continue;
    await keep(options, await confirm(side, { from, to }, options.pause));
    done[`new ${side.number}`] = String(to);
  }
  return done;
}

/** What differs first, then what was not looked at for longest. Settles with what to note. */
async function lookAtOlder(options: LookOptions): Promise<Noted> {
  const { noted, nowMs } = options;
  const sides = await sidesOf(options);
  await lookAgain(options, sides);
  const since = (what: 'last' | 'recent' | 'old') => nowMs - Number(noted[what] ?? 0);
  const compare = async ({ from, to }: Minutes) => {
    for (const side of sides) {
      const settled = await readSettled(options, side.shards);
      await keep(options, await confirm(side, { from, to: Math.min(to, settled) }, options.pause));
    }
  };
  const lookBack = async (minutes: number) => {
    const to = Math.floor(nowMs / 60_000);
    await compare({ from: to - minutes, to });
    await keepUnwritten(options, { from: to - minutes, to });
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
  await compare(month);
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

/** Looks again at some minutes in which something differs, and forgets what does not any more. */
async function lookAgain(options: CheckOptions, sides: readonly Side[]): Promise<void> {
  const byPlace = new Map<string, { side: Side | undefined; minute: number; known: FoundDifference[] }>();
  for (const difference of await readDifferences(options.redis)) {
    const side = sides.find(
      ({ shards, shardOf }) => difference.app_id !== '' && shards.includes(shardOf(difference.app_id)),
    );
    // Its server does not answer.
    if (side === undefined && difference.app_id !== '') continue;
    const minute = Date.parse(difference.minute) / 60_000;
    const name = `${side?.shards.join() ?? ''} ${minute}`;
    const place = byPlace.get(name) ?? { side, minute, known: [] };
    place.known.push(difference);
    byPlace.set(name, place);
  }
  // By chance, so that none is forgotten where there are many.
  const places = [...byPlace.values()].sort(() => Math.random() - 0.5).slice(0, ledgerChecks.minutesAgainMax);
  for (const { side, minute, known } of places) {
    const span = { from: minute, to: minute };
    const found = new Set(
      side === undefined
        ? (await findUnwritten(options, span)).map(() => ' unwritten')
        : (await findDifferences(side, span)).map(({ app_id, kind }) => `${app_id} ${kind}`),
    );
    const gone = known.filter(({ app_id, kind }) => !found.has(`${app_id} ${kind}`)).map(nameOf);
    if (gone.length > 0) await options.redis.hdel(registryKeys.ledgerDifferences, ...gone);
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
