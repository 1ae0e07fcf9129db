// Faults of clocks, and faults with forgotten keys. One of our processes runs with a wrong time for a while. Redis's clock is set back, or
// jumps by more than a day. The clock of claims is advanced, so that Redis forgets keys.

import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { eventIdOfKey } from '../../src/ingest/event-id.js';
import { shardKeys } from '../../src/redis/keys.js';
import type { SentEvent } from '../harness/endpoints.js';
import { type Endpoint, keyAt } from '../harness/endpoints.js';
import type { Request } from '../harness/load.js';
import { ofOwnUser } from './clients.js';
import type { Fault, World } from './fault.js';
import { hold } from './fault.js';
import { childOf, disturb } from './faults-processes.js';
import type { Random } from './random.js';
import { faketimeLibrary } from './tools.js';

const hour = 3_600;

/** Offsets in seconds. */
const offsets = [-hour, -90, 90, hour];

/** As if Redis's clock had been ahead and were set back: changes only the time that the scripts remember, not the clock itself. */
const redisSetBack: Fault = {
  name: 'clock of redis set back',
  touches: ['redis'],
  run: async (world, random) => {
    const { redis } = world;
    const [seconds] = await redis.time();
    const ahead = random.int(1, 5);
    await redis.hset(shardKeys.state(0), 'clock_us', (Number(seconds) + ahead) * 1_000_000);
    world.clockStoodMs += ahead * 1000;
    await hold(random.int(500, 1_500));
    return true;
  },
};

/** Longer than any key is remembered. */
const dayAndMoreS = [24 * hour + 120, 26 * hour];

/** Sends records with keys, each of a new user; settles with the acknowledged requests, for `repeatKeyed`. */
export async function sendKeyed({ producer, sluice }: World, random: Random): Promise<readonly Request[]> {
  const keyed = (): SentEvent => {
    const event = ofOwnUser(producer);
    return { ...event, idempotency_key: `${event.properties.marker}-again` };
  };
  const sendings: [Endpoint, SentEvent[]][] = [
    ['track', [keyed()]],
    ['bulk', [keyed(), keyed(), keyed()]],
    ['collect', [keyed(), keyed()]],
  ];
  const sent: Request[] = [];
  for (const [endpoint, events] of sendings) {
    sent.push(await producer.sendTo(endpoint, random.pick(sluice.api).baseUrl, events));
  }
  return sent.filter(({ outcome }) => outcome === 'acknowledged');
}

/** Sends the same records again, and other records with the same keys. None of these may be stored. */
export async function repeatKeyed(
  { producer, sluice }: World,
  sent: readonly Request[],
  random: Random,
): Promise<void> {
  for (const { endpoint = 'track', events } of sent) {
    const others = events.map((event) => ({
      ...ofOwnUser(producer),
      idempotency_key: event.idempotency_key,
    }));
    for (const again of [events, others as SentEvent[]]) {
      await producer.sendTo(endpoint, random.pick(sluice.api).baseUrl, again);
    }
  }
}

/** How many leading digits of an id choose its bucket of remembered keys, with the small budget of this deployment. */
const bucketDigits = 4;
const keysTriedMax = 2_000_000;
/** The part of an id that Redis remembers. */
const claimDigits = 26;

async function sendBeside({ producer, sluice }: World, key: string, random: Random): Promise<void> {
  const bucketOf = (name: string) => eventIdOfKey(producer.appId, name, 'shared').slice(0, bucketDigits);
  const bucket = bucketOf(key);
  for (let number = 0; number < keysTriedMax; number += 1) {
    const beside = `${key} beside ${number}`;
    if (bucketOf(beside) !== bucket) continue;
    const record = { ...ofOwnUser(producer), idempotency_key: beside };
    await producer.sendTo('track', random.pick(sluice.api).baseUrl, [record]);
    return;
  }
}

function move(world: World, seconds: number): void {
  if (world.clock === undefined) throw new Error('this Redis has no clock that can be set');
  world.clockMoved = true;
  world.clock.moveBy(seconds);
}

/** No worker runs for longer than any key is remembered, and meanwhile producers repeat records that wait for the workers. */
const stoppedWorkers: Fault = {
  name: 'workers stopped for longer than keys are remembered',
  touches: ['worker-1', 'worker-2', 'redis'],
  needs: 'cc',
  run: async (world, random) => {
    const { workers } = world.sluice;
    const before = await sendKeyed(world, random);
    await Promise.all(workers.map((worker) => worker.kill9()));
    const meanwhile = await sendKeyed(world, random);
    move(world, random.pick(dayAndMoreS));
    await repeatKeyed(world, [...before, ...meanwhile], random);
    // Other keys in the same buckets make Redis rewrite these, which drops what it may forget.
    for (const request of meanwhile) {
      for (const event of request.events) await sendBeside(world, keyAt('track', event) ?? '', random);
    }
    await repeatKeyed(world, meanwhile, random);
    await hold(random.int(0, 1_500));
    await Promise.all(workers.map((worker) => worker.restart()));
    await hold(random.int(0, 4_000));
    await repeatKeyed(world, [...before, ...meanwhile], random);
    return meanwhile.length > 0;
  },
};

const dayAhead: Fault = {
  name: 'clock of redis a day ahead',
  touches: ['redis'],
  needs: 'cc',
  run: async (world, random) => {
    const before = await sendKeyed(world, random);
    await hold(random.int(0, 1_000));
    move(world, random.pick(dayAndMoreS));
    await repeatKeyed(world, before, random);
    await hold(random.int(0, 2_500));
    await repeatKeyed(world, before, random);
    return before.length > 0;
  },
};

const dayAheadAndBack: Fault = {
  name: 'clock of redis a day ahead and back',
  touches: ['redis'],
  needs: 'cc',
  run: async (world, random) => {
    const before = await sendKeyed(world, random);
    const seconds = random.pick(dayAndMoreS);
    move(world, seconds);
    const meanwhile = await sendKeyed(world, random);
    await hold(random.int(200, 2_500));
    world.clockStoodMs += seconds * 1000;
    move(world, -seconds);
    await repeatKeyed(world, [...before, ...meanwhile], random);
    return before.length > 0;
  },
};

async function isRemembered({ redis, producer }: World, keys: readonly string[]): Promise<boolean> {
  const buckets = await redis.hvalsBuffer(shardKeys.claims(0));
  return keys.some((key) => {
    const id = Buffer.from(eventIdOfKey(producer.appId, key, 'shared').slice(0, claimDigits), 'hex');
    return buckets.some((bucket) => bucket.includes(id));
  });
}

const forgottenMsMax = 20_000;
/** How far one step advances the clock. A round has so few keys that Redis remembers them for a day, which takes several steps. */
const agedMinutes = 120;

/**
 * Advances the clock of claims, unless no worker has looked at it since Redis was emptied: the first look takes the clock as the minute of
 * the first claim.
 */
export async function advanceClaimClock(redis: World['redis'], minutes: number): Promise<void> {
  const state = shardKeys.state(0);
  if ((await redis.hexists(state, 'claims_first_minute')) === 0) return;
  await redis.hincrby(state, 'claim_clock_us', minutes * 60_000_000);
}

/** Advances the clock of claims until Redis has forgotten the keys of these requests; settles with whether it has. */
export async function forgetKeys(world: World, sent: readonly Request[], random: Random): Promise<boolean> {
  const { redis } = world;
  const minute = async (field: string, unit = 1) =>
    Math.floor(Number((await redis.hget(shardKeys.state(0), field)) ?? 0) / unit);
  const sentAt = await minute('claim_clock_us', 60_000_000);
  const giveUpAt = performance.now() + forgottenMsMax;
  const isForgotten = async () => (await minute('claims_kept_from')) > sentAt;
  while (!(await isForgotten()) && performance.now() < giveUpAt) {
    await advanceClaimClock(redis, agedMinutes);
    await hold(random.int(200, 600));
  }
  // A key that Redis may forget stays in its bucket until the bucket is rewritten.
  const keys = sent.flatMap(({ endpoint = 'track', events }) =>
    events.map((event) => keyAt(endpoint, event) ?? ''),
  );
  for (const key of keys) await sendBeside(world, key, random);
  return keys.length > 0 && (await isForgotten()) && !(await isRemembered(world, keys));
}

const forgottenKeys: Fault = {
  name: 'keys forgotten by redis',
  touches: ['worker-1', 'worker-2', 'redis', 'clickhouse', 'gate'],
  run: async (world, random) => {
    const before = await sendKeyed(world, random);
    const isGone = await forgetKeys(world, before, random);
    await repeatKeyed(world, before, random);
    return isGone;
  },
};

/** Kills ClickHouse, and removes the files of the index of keys. */
async function loseIndex({ clickhouse, sluice, indexLostMs }: World): Promise<void> {
  const [table] = await sluice.rows<{ data_paths: readonly string[] }>(
    "SELECT data_paths FROM system.tables WHERE database = currentDatabase() AND name = 'stored_keys'",
  );
  const folder = table?.data_paths[0];
  if (folder === undefined) throw new Error('there is no index of keys');
  await clickhouse.kill9();
  indexLostMs.push(performance.now());
  for (const name of readdirSync(folder)) {
    if (name !== 'format_version.txt') rmSync(join(folder, name), { recursive: true });
  }
  await clickhouse.restart();
}

/** Redis has forgotten keys, and the index of keys is lost too. Late repeats wait until workers have rebuilt it from the stored rows. */
const lostIndex: Fault = {
  name: 'index of keys lost',
  touches: ['worker-1', 'worker-2', 'redis', 'clickhouse', 'gate'],
  run: async (world, random) => {
    const before = await sendKeyed(world, random);
    const isGone = await forgetKeys(world, before, random);
    await loseIndex(world);
    await repeatKeyed(world, before, random);
    return isGone;
  },
};

/** A worker that has segments of late repeats is paused until the other one has stored them, and then continues. */
const shadowedWorker: Fault = {
  name: 'late repeats in two workers',
  touches: ['worker-1', 'worker-2', 'redis', 'clickhouse', 'gate'],
  run: async (world, random) => {
    const before = await sendKeyed(world, random);
    const isGone = await forgetKeys(world, before, random);
    const worker = childOf(world, random.pick(['worker-1', 'worker-2'] as const));
    const repeats = repeatKeyed(world, before, random);
    await hold(random.int(0, 600));
    worker.sigstop();
    await hold(random.int(2_200, 3_500));
    worker.sigcont();
    await repeats;
    return isGone && worker.running;
  },
};

const offsetFaults = (['api-1', 'api-2', 'worker-1', 'worker-2'] as const).map(
  (part): Fault => ({
    name: `clock of ${part.slice(0, -2)}`,
    touches: [part],
    needs: 'faketime',
    run: async (world, random) => {
      disturb(world, part);
      const child = childOf(world, part);
      const seconds = random.pick(offsets);
      world.altered.add(child.name);
      await child.restart({
        LD_PRELOAD: faketimeLibrary(),
        FAKETIME: `${seconds < 0 ? '' : '+'}${seconds}s`,
        FAKETIME_DONT_FAKE_MONOTONIC: '1',
      });
      const took = readFileSync(`/proc/${child.pid}/maps`, 'utf8').includes('libfaketime');
      await hold(random.int(800, 2_000));
      await child.restart();
      world.altered.delete(child.name);
      return took;
    },
  }),
);

export const clockFaults: readonly Fault[] = [
  ...offsetFaults,
  redisSetBack,
  stoppedWorkers,
  forgottenKeys,
  lostIndex,
  shadowedWorker,
  dayAhead,
  dayAheadAndBack,
];
