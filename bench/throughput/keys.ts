// What does an idempotency key cost that Redis has forgotten? The same bulk load with keys as long as none was ever forgotten,
// and then with more and more keys in the index: new keys, and keys that the index has. Keys are forgotten as they are
// in service, by the clock of claims, which is set forward; the index is filled up by ClickHouse.

import type { Redis } from 'ioredis';
import { Pool } from 'undici';
import { readMetric } from '../../harness/fault-checks.js';
import { untilStored } from '../../harness/ingestion.js';
import { until } from '../../harness/wait.js';
import { shardKeys } from '../../src/redis/keys.js';
import type { Context } from '../context.js';
import type { Deployment, OwnProcesses } from '../deployment/deployment.js';
import { countRecords } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { figure } from '../figures.js';
import { bulkBodies } from '../load/events.js';
import { cpuBetween, sumCpu } from './measure.js';

export type KeysLevel = {
  /** In the index; 0: no key was ever forgotten. */
  readonly keys: number;
  /** µs of CPU an event over all processes, of each run. */
  readonly newKeys: readonly number[];
  /** The same of events whose keys the index has; none before a key was forgotten. */
  readonly repeats: readonly number[];
};

export type KeysResult = {
  readonly levels: readonly KeysLevel[];
  /** µs of CPU a key to add stored keys to the index, and to forget them. */
  readonly addMicroseconds: number;
  readonly bytesPerKey: number;
};

const eventsEach = 500;
const requests = 400;
const connections = 8;
const path = '/api/track';
const events = requests * eventsEach;
const rowsPerFill = 5_000_000;
const minuteUs = 60_000_000;
const waitMs = 180_000;

/** The smallest budget: Redis forgets what is older than a quarter of an hour. */
export const keysEnv = { CLAIM_BYTES_MAX: '1048576' };

export async function runKeys({ deployment, redis, options, progress }: Context): Promise<KeysResult> {
  const [appId = ''] = await deployment.addEnvironments(1, 'none');
  const pool = new Pool(deployment.url, { connections });
  let sent = 0;
  /** Sends events and settles with the CPU of one, until all are stored or left out. */
  const send = async (first: number): Promise<number> => {
    const bodies = bulkBodies(requests, eventsEach, { appId, first, keyPrefix: 'key' });
    const before = deployment.cpu();
    const answers = await Promise.all(
      bodies.map(async (body) => {
        const headers = { 'content-type': 'application/json' };
        const { statusCode, body: answer } = await pool.request({ method: 'POST', path, headers, body });
        return `${statusCode} ${await answer.text()}`;
      }),
    );
    const wrong = answers.find((answer) => answer !== '200 {}');
    if (wrong !== undefined) throw new BenchError(`a request was answered ${wrong.slice(0, 500)}`);
    await untilStored(deployment.own.sluice);
    return sumCpu(cpuBetween(before, deployment.cpu())) / events;
  };
  const sendNew = async () => {
    const cost = await send(sent);
    sent += events;
    const stored = await countRecords(deployment, appId);
    if (stored !== sent) throw new BenchError(`${sent} events were sent, ${stored} are stored`);
    return cost;
  };
  try {
    await sendNew();
    const levels: KeysLevel[] = [{ keys: 0, newKeys: await repeated(options.repeats, sendNew), repeats: [] }];
    progress.say(`keys: none forgotten, ${levels[0]?.newKeys.map(figure).join(', ')} µs an event`);
    const before = deployment.cpu();
    const added = sent;
    await forget(redis);
    const addMicroseconds = sumCpu(cpuBetween(before, deployment.cpu())) / added;
    progress.say(`keys: ${figure(addMicroseconds)} µs to add a key and to forget it`);
    for (const keys of options.keysEvents) {
      await fill(deployment, keys, progress.say);
      await restartWorker(deployment.own, sendNew);
      const newKeys = await repeated(options.repeats, sendNew);
      const repeats: number[] = [];
      for (let i = 0; i < options.repeats; i += 1) {
        await forget(redis);
        repeats.push(await send(0));
        const stored = await countRecords(deployment, appId);
        if (stored !== sent) throw new BenchError(`repeats were stored: ${stored} instead of ${sent}`);
      }
      levels.push({ keys, newKeys, repeats });
      progress.say(
        `keys: ${figure(keys)} in the index, new keys ${newKeys.map(figure).join(', ')}, repeats ${repeats.map(figure).join(', ')} µs an event`,
      );
    }
    const [size] = await deployment.rows<{ bytes: number }>(
      `SELECT sum(bytes_on_disk) / sum(rows) AS bytes FROM system.parts
        WHERE active AND database = currentDatabase() AND table = 'stored_keys'`,
    );
    return { levels, addMicroseconds, bytesPerKey: size?.bytes ?? 0 };
  } finally {
    await pool.close();
  }
}

async function repeated(count: number, run: () => Promise<number>): Promise<number[]> {
  const costs: number[] = [];
  for (let i = 0; i < count; i += 1) costs.push(await run());
  return costs;
}

/** Sets the clock of claims forward until Redis has forgotten all keys that it knew. */
async function forget(redis: Redis): Promise<void> {
  const state = shardKeys.state(0);
  const minuteOf = async (field: string, unit: number) =>
    Math.floor(Number(await redis.hget(state, field)) / unit);
  const last = await minuteOf('claim_clock_us', minuteUs);
  await until(
    async () => {
      if ((await minuteOf('claims_kept_from', 1)) > last) return true;
      await redis.hincrby(state, 'claim_clock_us', 5 * minuteUs);
      return false;
    },
    { deadlineMs: waitMs, what: 'the keys are forgotten', everyMs: 500 },
  );
  // What remains of them is removed bucket by bucket, within the hour; here at once.
  await redis.del(shardKeys.claims(0));
}

/** A worker reads the index when it needs it first. Settles when it has, so that it rules new keys out. */
async function restartWorker({ sluice }: OwnProcesses, sendNew: () => Promise<number>): Promise<void> {
  for (const worker of sluice.workers) await worker.restart();
  const [api] = sluice.api;
  if (api === undefined) return;
  let before = -1;
  await until(
    async () => {
      await sendNew();
      // Metrics of workers are shared every two seconds.
      await new Promise((go) => setTimeout(go, 2_500));
      const now = (await readMetric(api, 'sluice_keys_looked_up_total')) ?? 0;
      const isLoaded = before >= 0 && now - before < events / 10;
      before = now;
      return isLoaded;
    },
    { deadlineMs: waitMs, what: 'the worker has read the index', everyMs: 1 },
  );
}

/** Adds random keys until the index has so many. */
async function fill({ rows }: Deployment, keys: number, say: (line: string) => void): Promise<void> {
  const count = async () => {
    const [row] = await rows<{ n: number }>('SELECT toUInt32(count()) AS n FROM stored_keys');
    return row?.n ?? 0;
  };
  for (let have = await count(); have < keys; have = await count()) {
    const more = Math.min(rowsPerFill, keys - have);
    await rows(`INSERT INTO stored_keys
      SELECT bitOr(sipHash64(number, ${have}), 1), sipHash64(number, ${have}, 1) % 281474976710656, 64 * (1 + number % 20000)
      FROM numbers(${more})
      SETTINGS max_insert_threads = 1, max_threads = 1, min_insert_block_size_rows = ${more}, min_insert_block_size_bytes = 0`);
    say(`keys: ${have + more} in the index`);
  }
  await rows('OPTIMIZE TABLE stored_keys FINAL');
}
