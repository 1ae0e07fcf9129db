// What does an idempotency key cost once Redis has forgotten it? The same bulk load with keys runs before any key was
// forgotten, and then with more and more keys in the index: with new keys, and with keys that the index holds, in the order in which
// they came first and from all over. To make Redis forget keys the bench advances the clock of claims; ClickHouse fills the index.

import { setTimeout as pause } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { readMetric } from '../../harness/fault-checks.js';
import { untilStored } from '../../harness/ingestion.js';
import { until } from '../../harness/wait.js';
import { shardKeys } from '../../src/redis/keys.js';
import type { Context } from '../context.js';
import type { Deployment, OwnProcesses } from '../deployment/deployment.js';
import { startMeter, sumCpu } from '../deployment/meter.js';
import { countRecords, numberOf } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { cellText, figure } from '../figures.js';
import { bulkBodies, eventOf } from '../load/events.js';
import { mergeSeconds, type Second } from '../load/second.js';
import { sendLoad } from '../load/sender.js';
import { allAnswered, json } from '../load/threads.js';

export type KeysLevel = {
  /** In the index; 0: no key was ever forgotten. */
  readonly keys: number;
  /** µs of CPU per event over all processes, one figure per run. */
  readonly newKeys: readonly number[];
  /** The same for events whose keys the index holds, sent in the order of before; empty before a key was forgotten. */
  readonly repeats: readonly number[];
  /** And for such events from all over what was sent. */
  readonly scattered: readonly number[];
  /** Ten seconds of new keys at a rate: how long after the last was due all were stored. */
  readonly atRate?: { readonly perSecond: number; readonly behindSeconds: number };
};

export type KeysResult = {
  readonly levels: readonly KeysLevel[];
  /** µs of CPU per key: adding it to the index and forgetting it. */
  readonly addMicroseconds: number;
  readonly bytesPerKey: number;
};

/** What storing has to keep up with on two cores. */
const perSecond = 30_000;
const secondsAtRate = 10;

const eventsEach = 500;
const requests = 400;
const connections = 8;
const events = requests * eventsEach;
const keyPrefix = 'key';
const rowsPerFill = 5_000_000;
const minuteUs = 60_000_000;
const waitMs = 180_000;
/** Events so far apart follow one another in a load of scattered repeats. No factor of the number of events. */
const scatteredBy = 7_919;
/** Workers share their metrics every two seconds. */
const metricsMs = 2_500;

/** The smallest budget: Redis forgets keys that are older than a quarter of an hour. */
export const keysEnv = { CLAIM_BYTES_MAX: '1048576' };

export async function runKeys({ deployment, redis, options, progress }: Context): Promise<KeysResult> {
  const [appId = ''] = await deployment.addEnvironments(1, 'none');
  let sent = 0;
  /** Sends bodies, as fast as they are answered or at a rate of requests; settles when all is stored or dropped as repeats. */
  const send = async (bodies: readonly Buffer[], rate?: number) => {
    const seconds: Second[] = [];
    const rest = [...bodies].reverse();
    const nextBody = () => rest.pop() ?? Buffer.alloc(0);
    const load = {
      url: deployment.url,
      path: '/api/track',
      headers: json,
      answer: '{}',
      connections,
      nextBody,
    };
    const limits = { seconds: Number.POSITIVE_INFINITY, requests: bodies.length, sendsAll: true };
    await sendLoad({ ...load, ...limits, rate }, (second) => seconds.push(second));
    allAnswered(mergeSeconds(seconds));
    await untilStored(deployment.own.sluice);
  };
  const assertSent = async () => {
    const stored = await countRecords(deployment, appId);
    if (stored !== sent) throw new BenchError(`${sent} events were sent, ${stored} are stored`);
  };
  /** Settles with the CPU per event. */
  const costOf = async (bodies: readonly Buffer[]): Promise<number> => {
    const read = startMeter(() => deployment.cpu());
    await send(bodies);
    const cost = sumCpu(read().used) / events;
    await assertSent();
    return cost;
  };
  const following = (first: number, count = requests) =>
    bulkBodies(count, eventsEach, { appId, first, keyPrefix });
  const scattered = () =>
    Array.from({ length: requests }, (_, request) => {
      const numberOf = (event: number) => ((request * eventsEach + event) * scatteredBy) % sent;
      const list = Array.from({ length: eventsEach }, (_, event) => eventOf(numberOf(event), { keyPrefix }));
      return Buffer.from(JSON.stringify({ app_id: appId, events: list }));
    });
  const sendNew = async () => {
    const bodies = following(sent);
    sent += events;
    return costOf(bodies);
  };
  /** Settles with the seconds from when the last was due until all were stored. */
  const sendAtRate = async (): Promise<number> => {
    const bodies = following(sent, (secondsAtRate * perSecond) / eventsEach);
    const startMs = performance.now();
    await send(bodies, perSecond / eventsEach);
    const behindSeconds = (performance.now() - startMs) / 1_000 - secondsAtRate;
    sent += bodies.length * eventsEach;
    await assertSent();
    return behindSeconds;
  };
  const sendAgain = async (bodies: readonly Buffer[]) => {
    await forget(redis);
    return costOf(bodies);
  };
  const repeated = async (run: () => Promise<number>): Promise<number[]> => {
    const costs: number[] = [];
    for (let i = 0; i < options.repeats; i += 1) costs.push(await run());
    return costs;
  };
  await sendNew();
  const levels: KeysLevel[] = [{ keys: 0, newKeys: await repeated(sendNew), repeats: [], scattered: [] }];
  const read = startMeter(() => deployment.cpu());
  const added = sent;
  await forget(redis);
  const addMicroseconds = sumCpu(read().used) / added;
  for (const keys of options.keysEvents) {
    await fill(deployment, keys, progress.say);
    await restartWorker(deployment.own, sendNew);
    const newKeys = await repeated(sendNew);
    const repeats = await repeated(() => sendAgain(following(0)));
    const apart = await repeated(() => sendAgain(scattered()));
    const behindSeconds = await sendAtRate();
    levels.push({ keys, newKeys, repeats, scattered: apart, atRate: { perSecond, behindSeconds } });
    const words = Object.entries({ new: newKeys, repeats, scattered: apart }).map(
      ([name, costs]) => `${name} ${cellText(costs)}`,
    );
    progress.say(`keys: ${figure(keys)} in the index, µs per event: ${words.join(', ')}`);
  }
  const table = "system.parts WHERE active AND database = currentDatabase() AND table = 'stored_keys'";
  const bytesPerKey = await numberOf(deployment, 'sum(bytes_on_disk) / sum(rows)', table);
  return { levels, addMicroseconds, bytesPerKey };
}

/** Advances the clock of claims until Redis has forgotten all keys that it held. */
async function forget(redis: Redis): Promise<void> {
  const state = shardKeys.state(0);
  const read = async (field: string) => Number(await redis.hget(state, field));
  const last = Math.floor((await read('claim_clock_us')) / minuteUs);
  await until(
    async () => {
      if ((await read('claims_kept_from')) > last) return true;
      await redis.hincrby(state, 'claim_clock_us', 5 * minuteUs);
      return false;
    },
    { deadlineMs: waitMs, what: 'the keys are forgotten', everyMs: 500 },
  );
  // The service would remove the buckets one by one, within the hour.
  await redis.del(shardKeys.claims(0));
}

/** Settles when the restarted worker has read the index and recognizes new keys without a query. */
async function restartWorker({ sluice }: OwnProcesses, sendNew: () => Promise<number>): Promise<void> {
  for (const worker of sluice.workers) await worker.restart();
  const [api] = sluice.api;
  if (api === undefined) return;
  let before = -1;
  await until(
    async () => {
      await sendNew();
      await pause(metricsMs);
      const now = (await readMetric(api, 'sluice_keys_looked_up_total')) ?? 0;
      const isLoaded = before >= 0 && now - before < events / 10;
      before = now;
      return isLoaded;
    },
    { deadlineMs: waitMs, what: 'the worker has read the index', everyMs: 1 },
  );
}

/** Adds random keys until the index has this many. */
async function fill(deployment: Deployment, keys: number, say: (line: string) => void): Promise<void> {
  const count = () => numberOf(deployment, 'count()', 'stored_keys');
  for (let have = await count(); have < keys; have = await count()) {
    const more = Math.min(rowsPerFill, keys - have);
    await deployment.rows(`INSERT INTO stored_keys
      SELECT bitOr(sipHash64(number, ${have}), 1), sipHash64(number, ${have}, 1) % 281474976710656, 64 * (1 + number % 20000)
      FROM numbers(${more})
      SETTINGS max_insert_threads = 1, max_threads = 1, min_insert_block_size_rows = ${more}, min_insert_block_size_bytes = 0`);
    say(`keys: ${have + more} in the index`);
  }
  await deployment.rows('OPTIMIZE TABLE stored_keys FINAL');
}
