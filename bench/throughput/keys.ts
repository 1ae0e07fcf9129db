// What do idempotency keys cost once Redis has forgotten some? Several deployments take turns: one in which no key was ever forgotten, and
// one for each size of the index. Each gets events without keys, with new keys, and with keys that the index has, in their first order and
// scattered. While new keys arrive, Redis keeps forgetting and the index keeps growing: the bench advances the clock of claims for that.
// ClickHouse itself fills the index at first.

import { setTimeout as pause } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { shardKeys } from '../../src/redis/keys.js';
import { untilStored } from '../../test/harness/ingestion.js';
import { until } from '../../test/harness/wait.js';
import type { Context } from '../context.js';
import type { Deployment } from '../deployment/deployment.js';
import { startMeter, sumCpu } from '../deployment/meter.js';
import { mergesEnded, numberOf } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { cellText } from '../figures.js';
import { eventOf } from '../load/events.js';
import { mergeSeconds, type Second } from '../load/second.js';
import { sendLoad } from '../load/sender.js';
import { allAnswered, json } from '../load/threads.js';
import type { Options } from '../options.js';

/** Repeats use keys that only the index has. There are none while no key was forgotten. */
const kinds = ['withoutKeys', 'newKeys', 'repeats', 'scattered'] as const;
type Kind = (typeof kinds)[number];

/** µs of CPU per event over all processes, one figure per round. With new keys this includes adding all of them to the index. */
type KeysLevel = Readonly<Record<Kind, readonly number[]>> & {
  /** How many keys the index has; 0 if no key was ever forgotten. */
  readonly keys: number;
  /** For ten seconds of new keys at a fixed rate: how long after the last one was due all were stored. */
  readonly atRate?: { readonly perSecond: number; readonly behindSeconds: number };
};

/** The events per second with which storing must keep up on two cores. */
const perSecond = 30_000;
const secondsAtRate = 10;

const eventsEach = 500;
const requests = 300;
/** Enough requests that keys are added to the index several times during them. */
const requestsWhileForgetting = 800;
const connections = 8;
const rowsPerFill = 5_000_000;
const minuteUs = 60_000_000;
const waitMs = 600_000;
/** The distance between consecutive events in a load of scattered repeats. It does not divide the number of events. */
const scatteredBy = 7_919;
/** Workers share their metrics every two seconds. */
const metricsMs = 2_500;

/** Room for all keys of a session, none of which may be forgotten. */
const roomyEnv = { CLAIM_BYTES_MAX: String(20 * 1024 ** 2) };
/** The smallest budget with the same number of buckets. Redis then forgets keys that are older than a quarter of an hour. */
const forgettingEnv = { CLAIM_BYTES_MAX: String(1024 ** 2) };
/**
 * How fast the clock of claims runs while new keys arrive: they are added to the index every few seconds, and Redis forgets them after
 * eight seconds.
 */
const clockTimes = 120;
const clockEveryMs = 250;
/** Redis keeps no key longer than this, whatever the budget. */
const keptUsMax = 1_500 * minuteUs;
const state = shardKeys.state(0);

/** One in which no key is forgotten, and one for each size of the index. */
export const keysDeployments = ({ keysEvents }: Options) => [
  { env: roomyEnv },
  ...keysEvents.map(() => ({ env: forgettingEnv })),
];

export async function runKeys({ deployment, deployments, options, progress: { say } }: Context) {
  const levels: Awaited<ReturnType<typeof prepareLevel>>[] = [];
  for (const [index, one] of deployments.entries()) {
    const keys = options.keysEvents[index - 1] ?? 0;
    const level = await prepareLevel(one, keys);
    levels.push(level);
    if (keys === 0) continue;
    await level.begin();
    say(`keys: ${keys} in the index`);
  }
  // A process's first requests cost several times as much, and this deployment, unlike the others, was not sent keys yet.
  await levels[0]?.costOf('newKeys');
  for (const { costOf } of levels) await costOf('withoutKeys');
  for (let round = 1; round <= options.repeats; round += 1) {
    for (const kind of kinds) {
      for (const { keys, costs, costOf } of levels) {
        if (keys > 0 || !isRepeat(kind)) costs[kind].push(await costOf(kind));
      }
    }
    const words = levels.map(({ costs }) => kinds.map((kind) => cellText(costs[kind])).join(', '));
    say(`keys, round ${round}/${options.repeats}, µs per event: ${words.join('; ')}`);
  }
  const found: KeysLevel[] = [];
  for (const { keys, costs, sendAtRate } of levels) {
    const atRate = keys === 0 ? undefined : { perSecond, behindSeconds: await sendAtRate() };
    found.push({ keys, ...costs, atRate });
  }
  const lookedUpBefore = await lookedUp(deployment);
  const forgotten = Number(await deployment.redis.hget(state, 'keys_forgotten_to'));
  if (forgotten > 0) throw new BenchError('a key was forgotten');
  const table = "system.parts WHERE active AND database = currentDatabase() AND table = 'stored_keys'";
  return {
    levels: found as readonly KeysLevel[],
    /** How many keys workers looked up in the index before any was forgotten. */
    lookedUpBefore,
    bytesPerKey: await numberOf(deployments.at(-1) as Deployment, 'sum(bytes_on_disk) / sum(rows)', table),
  };
}

function isRepeat(kind: Kind): boolean {
  return kind === 'repeats' || kind === 'scattered';
}

/** Prepares one of the deployments, and what is sent to it. */
async function prepareLevel(deployment: Deployment, keys: number) {
  const { redis, sluice, url } = deployment;
  const [appId = ''] = await deployment.addEnvironments(1, 'none');
  const costs: Record<Kind, number[]> = { withoutKeys: [], newKeys: [], repeats: [], scattered: [] };
  let keyed = 0;
  let stored = 0;
  /** Bodies of events with these numbers, which also determine the keys. */
  const bodiesOf = (count: number, numberOfEvent: (event: number) => number, keyPrefix?: string) =>
    Array.from({ length: count }, (_, request) => {
      const events = Array.from({ length: eventsEach }, (_, at) =>
        eventOf(numberOfEvent(request * eventsEach + at), keyPrefix),
      );
      return Buffer.from(JSON.stringify({ app_id: appId, events }));
    });
  const newBodies = (count: number) => bodiesOf(count, (event) => keyed + event, 'key');
  const bodies: Readonly<Record<Kind, () => Buffer[]>> = {
    withoutKeys: () => bodiesOf(requests, (event) => event),
    newKeys: () => newBodies(keys > 0 ? requestsWhileForgetting : requests),
    repeats: () => bodiesOf(requests, (event) => event, 'key'),
    scattered: () => bodiesOf(requests, (event) => (event * scatteredBy) % keyed, 'key'),
  };
  /**
   * Sends bodies, as fast as they are answered or at a rate of requests. Settles with the number of events when all are stored or dropped.
   */
  const send = async (kind: Kind, made: readonly Buffer[], rate?: number) => {
    const seconds: Second[] = [];
    const rest = [...made].reverse();
    const nextBody = () => rest.pop() ?? Buffer.alloc(0);
    const load = { url, path: '/api/track', headers: json, answer: '{}', connections, nextBody, rate };
    const limits = { seconds: Number.POSITIVE_INFINITY, requests: made.length, sendsAll: true, isOwn: true };
    await sendLoad({ ...load, ...limits }, (second) => seconds.push(second));
    const events = allAnswered(mergeSeconds(seconds)) * eventsEach;
    await untilStored(sluice, waitMs);
    if (kind === 'newKeys') keyed += events;
    if (!isRepeat(kind)) stored += events;
    return events;
  };
  const assertStored = async () => {
    const found = await deployment.count(appId);
    if (found !== stored) throw new BenchError(`${stored} events were sent once, ${found} are stored`);
  };
  /** Settles with the CPU per event, in µs. */
  const costOf = async (kind: Kind): Promise<number> => {
    const made = bodies[kind]();
    if (keys > 0 && isRepeat(kind)) await forgetAll(redis);
    await mergesEnded(deployment);
    const read = startMeter(deployment.cpu);
    const end = keys > 0 && kind === 'newKeys' ? keepForgetting(redis) : undefined;
    const events = await send(kind, made);
    await end?.();
    const cost = sumCpu(read().used) / events;
    await assertStored();
    return cost;
  };
  /** Settles with the seconds from when the last event was due until all were stored. */
  const sendAtRate = async (): Promise<number> => {
    const made = newBodies((secondsAtRate * perSecond) / eventsEach);
    await mergesEnded(deployment);
    const end = keepForgetting(redis);
    const startMs = performance.now();
    await send('newKeys', made, perSecond / eventsEach);
    const behindSeconds = (performance.now() - startMs) / 1_000 - secondsAtRate;
    await end();
    await assertStored();
    return behindSeconds;
  };
  /** Makes Redis forget keys, and fills the index. Settles when a new worker has read the index, so that it rules out new keys itself. */
  const begin = async () => {
    await send('newKeys', newBodies(requests));
    await forgetAll(redis);
    await fill(deployment, keys);
    for (const worker of sluice.workers) await worker.restart();
    let before = await lookedUp(deployment);
    const isLoaded = async () => {
      const events = await send('newKeys', newBodies(requests));
      const now = await lookedUp(deployment);
      const few = now - before < events / 10;
      before = now;
      return few;
    };
    await until(isLoaded, { deadlineMs: waitMs, what: 'the worker has read the index', everyMs: 1 });
  };
  return { keys, costs, costOf, sendAtRate, begin };
}

function advanceClock(redis: Redis, us: number): Promise<number> {
  return redis.hincrby(state, 'claim_clock_us', us);
}

/** Makes the clock of claims run faster until the returned function is called, which settles when all keys are forgotten. */
function keepForgetting(redis: Redis): () => Promise<void> {
  const us = clockTimes * clockEveryMs * 1_000;
  const timer = setInterval(() => void advanceClock(redis, us).catch(() => undefined), clockEveryMs);
  return () => {
    clearInterval(timer);
    return forgetAll(redis);
  };
}

/** Advances the clock of claims by more than a day. Settles when Redis has forgotten all its keys, which are then in the index. */
async function forgetAll(redis: Redis): Promise<void> {
  const read = async (field: string) => Number(await redis.hget(state, field));
  const last = Math.floor((await read('claim_clock_us')) / minuteUs);
  await advanceClock(redis, keptUsMax);
  const haveGone = async () => (await read('claims_kept_from')) > last;
  await until(haveGone, { deadlineMs: waitMs, what: 'the keys are forgotten', everyMs: 100 });
  // The service would remove the buckets one by one within the hour.
  await redis.del(shardKeys.claims(0));
}

/** How many keys the workers have looked up in the index. */
async function lookedUp({ metric }: Deployment): Promise<number> {
  await pause(metricsMs);
  return metric('sluice_keys_looked_up_total');
}

/** Adds random keys until the index has this many. */
async function fill(deployment: Deployment, keys: number): Promise<void> {
  const count = () => numberOf(deployment, 'count()', 'stored_keys');
  for (let have = await count(); have < keys; have = await count()) {
    const more = Math.min(rowsPerFill, keys - have);
    await deployment.rows(`INSERT INTO stored_keys
      SELECT bitOr(sipHash64(number, ${have}), 1), sipHash64(number, ${have}, 1) % 281474976710656, 64 * (1 + number % 20000)
      FROM numbers(${more})
      SETTINGS max_insert_threads = 1, max_threads = 1, min_insert_block_size_rows = ${more}, min_insert_block_size_bytes = 0`);
  }
  await deployment.rows('OPTIMIZE TABLE stored_keys FINAL');
}
