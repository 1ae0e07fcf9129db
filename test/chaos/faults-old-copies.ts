// A store is set back, as a virtual machine may be: it is killed, and starts with a copy of its files from earlier in the round. The
// witness has counted further since the copy, so the service must notice. At the end, keyed records from before and after the copy are
// repeated.

import { cp, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { registryKeys } from '../../src/redis/keys.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { type Fault, hold, type Part, type World } from './fault.js';
import { repeatKeyed, sendKeyed } from './faults-clocks.js';
import { dumpOfSegments, type Held, recordsOf, restore } from './faults-redis.js';
import { readKeptDeletions } from './kept-deletions.js';
import { readStored } from './rows.js';

/** The processes that compare the stores must reach both. */
const touches: readonly Part[] = [
  'redis',
  'clickhouse',
  'gate',
  'api-redis',
  'worker-redis',
  'worker-clickhouse',
];
const noticedMsMax = 30_000;
const pauseMsMax = 30_000;

async function within(what: string, condition: () => Promise<boolean>): Promise<boolean> {
  return until(condition, { deadlineMs: noticedMsMax, what, everyMs: 100 }).catch(() => false);
}

/** Kills a store, does something with its files, and starts it again. */
async function whileDown(
  { server, clickhouse, cutDisk }: World,
  store: 'redis' | 'clickhouse',
  work: (folder: string) => Promise<void>,
): Promise<void> {
  const child = store === 'redis' ? server : clickhouse;
  await child.kill9();
  await work(join(child.dir, store === 'redis' ? 'appendonlydir' : 'clickhouse'));
  if (store === 'clickhouse') cutDisk?.sync();
  await child.restart();
}

const copyTo = (copy: string) => (folder: string) =>
  cp(folder, copy, { recursive: true, verbatimSymlinks: true });

/** Replaces the contents of a folder. The folder itself stays, since a disk may be mounted there. */
const replaceBy = (copy: string) => async (folder: string) => {
  for (const name of await readdir(folder)) await rm(join(folder, name), { recursive: true });
  await cp(copy, folder, { recursive: true, verbatimSymlinks: true });
};

/** Settles with whether both stores have a later number of the witness in time, by which the earlier copy can be recognized. */
async function haveCountedOn({ redis }: World): Promise<boolean> {
  const read = async (field: string) => Number(await redis.hget(registryKeys.witness, field));
  const from = await read('number');
  return within('ClickHouse has a later number of the witness', async () => (await read('kept:0')) > from);
}

/** Makes Redis hold up writes until it is killed or `resume` is called, so that its data stays the same. */
async function standStill({ redis }: World): Promise<void> {
  await redis.client('PAUSE', pauseMsMax, 'WRITE');
}

async function resume({ redis }: World): Promise<void> {
  await redis.client('UNPAUSE');
}

/** Reads the segments that Redis holds; works while writes are held up. */
async function holdsNow({ redis }: World): Promise<Held> {
  return (await redis.callBuffer('EVAL_RO', ...dumpOfSegments(0))) as Held;
}

/**
 * Redis counts as emptied: what it held when it was killed may be missing, except for what its copy holds too, which still waits there and
 * must be stored once.
 */
export const oldRedis: Fault = {
  name: 'old copy of redis put back',
  touches,
  run: async (world, random) => {
    const { redis, sluice, emptied } = world;
    const copy = tempDir('copy');
    try {
      const before = await sendKeyed(world, random);
      await standStill(world);
      const kept = await holdsNow(world);
      await whileDown(world, 'redis', copyTo(copy));
      if (!(await haveCountedOn(world))) return false;
      await hold(random.int(0, 2_000));
      const since = await sendKeyed(world, random);
      // Only what ClickHouse has now must come back, although it may have more by then.
      const { all: keptDeletions } = await readKeptDeletions(sluice);
      const fromMs = performance.now();
      await standStill(world);
      const held = await holdsNow(world);
      await whileDown(world, 'redis', replaceBy(copy));
      const markers = markersLost(await recordsOf(held), await recordsOf(kept));
      emptied.push({ fromMs, toMs: Number.POSITIVE_INFINITY, markers, keptDeletions });
      const isNoticed = await within(
        'Redis is known to be old',
        async () => (await redis.exists(registryKeys.epoch)) === 0,
      );
      await hold(random.int(0, 1_000));
      await restore(world);
      await repeatKeyed(world, [...before, ...since], random);
      return isNoticed && since.length > 0;
    } finally {
      removeTempDir(copy);
    }
  },
};

/**
 * What ClickHouse had when it was killed and its copy lacks is lost, with its keys, until it is sent again. Writes to Redis are held up
 * while this is read, so that Redis does not forget segments that were stored meanwhile.
 */
export const oldClickHouse: Fault = {
  name: 'old copy of clickhouse put back',
  touches,
  run: async (world, random) => {
    const { sluice, setBack, indexLostMs } = world;
    const copy = tempDir('copy');
    try {
      const before = await sendKeyed(world, random);
      await whileDown(world, 'clickhouse', copyTo(copy));
      if (!(await haveCountedOn(world))) return false;
      const since = await sendKeyed(world, random);
      await hold(random.int(500, 2_500));
      await standStill(world);
      const had = await readAllAtRest(world);
      const fromMs = performance.now();
      await whileDown(world, 'clickhouse', async (folder) => {
        await resume(world);
        await replaceBy(copy)(folder);
      });
      const has = await readAll(world);
      const markers = markersLost(had, has);
      const loss = { fromMs, toMs: Number.POSITIVE_INFINITY, markers };
      setBack.push(loss);
      // What was deleted since the copy is back until the recovery, and its keys are free afterwards.
      indexLostMs.push(fromMs);
      await hold(random.int(0, 2_000));
      let isNoticed = false;
      await within('ClickHouse is recovered', async () => {
        const { recovered } = (await sluice.admin('state', 'recover')) as { recovered: readonly number[] };
        isNoticed ||= recovered.length > 0;
        return true;
      });
      loss.toMs = performance.now();
      await repeatKeyed(world, [...before, ...since], random);
      return isNoticed && markers.size > 0;
    } finally {
      removeTempDir(copy);
    }
  },
};

function markersLost(had: ReadonlyMap<string, string>, has: ReadonlyMap<string, string>): Set<string> {
  return new Set([...had].filter(([record]) => !has.has(record)).map(([, marker]) => marker));
}

/** Reads everything once no more is being stored: inserts that had begun still continue after writes to Redis are held up. */
async function readAllAtRest(world: World): Promise<Map<string, string>> {
  let all = await readAll(world);
  for (;;) {
    await hold(restMs);
    const later = await readAll(world);
    if (later.size === all.size) return later;
    all = later;
  }
}

const restMs = 500;

/** The markers of everything that is stored, by environment and marker. */
async function readAll({ sluice, appIds }: World): Promise<Map<string, string>> {
  const stored = await Promise.all(
    appIds.map(async (appId) =>
      (await readStored(sluice, appId)).map(({ properties: { marker = '' } }) => [
        `${appId} ${marker}`,
        marker,
      ]),
    ),
  );
  return new Map(stored.flat() as [string, string][]);
}
