// Faults inside Redis: forgotten scripts, no memory, a full disk, a power cut, a rewrite, a full backlog, and the loss of everything.

import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { stampRows } from '../../src/clickhouse/stamps.js';
import { columnsOf } from '../../src/clickhouse/tables.js';
import { tableOf } from '../../src/contract/records.js';
import { segmentOfMember, shardKeys } from '../../src/redis/keys.js';
import { rowsOfStored } from '../../workers/segment-bytes.js';
import { until } from '../harness/wait.js';
import { fatEvents } from './clients.js';
import { memoryBytesMax } from './deployment.js';
import { type AnyWorld, type Emptied, type Fault, hold, type World } from './fault.js';
import { mutationsOfRounds, tooManyQueries } from './faults-clickhouse.js';
import { readKeptDeletions } from './kept-deletions.js';
import { watchForPowerCut } from './power-cut.js';
import type { Random } from './random.js';

const scriptFlush: Fault = {
  name: 'script flush',
  touches: [],
  run: async ({ redis }, random) => {
    for (let left = 3; left > 0; left -= 1) {
      await redis.script('FLUSH');
      await hold(random.int(50, 300));
    }
    return true;
  },
};

const memoryFull: Fault = {
  name: 'no memory for redis',
  touches: ['redis'],
  run: async ({ redis }, random) => {
    const before = await countErrors(redis, 'OOM');
    await redis.config('SET', 'maxmemory', 1);
    await hold(random.int(300, 1_500));
    await redis.config('SET', 'maxmemory', memoryBytesMax);
    return (await countErrors(redis, 'OOM')) > before;
  },
};

async function countErrors(redis: World['redis'], code: string): Promise<number> {
  const text = await redis.info('errorstats');
  return Number(new RegExp(`errorstat_${code}:count=(\\d+)`).exec(text)?.[1] ?? 0);
}

/** Redis exits when it cannot write, since it has `appendfsync always`. */
const diskFull: Fault = {
  name: 'full disk',
  touches: ['redis'],
  needs: 'mount',
  run: async ({ server, disk }, random) => {
    disk.fill();
    const ended = await until(() => !server.running, { deadlineMs: 4_000, what: 'redis ends' }).catch(
      () => false,
    );
    await hold(random.int(0, 800));
    disk.free();
    if (!server.running) await server.restart();
    return ended;
  },
};

const powerCut: Fault = {
  name: 'power cut of redis',
  touches: ['redis'],
  needs: 'strace',
  run: async ({ server }, random) => {
    const watched = await watchForPowerCut(server.pid, random.pick([0, 10, 30]));
    await hold(random.int(300, 1_500));
    const { syncs } = await watched.cut(() => server.kill9());
    await server.restart();
    return syncs > 0;
  },
};

const rewrite: Fault = {
  name: 'rewrite and kill redis',
  touches: ['redis'],
  run: async ({ redis, server }, random) => {
    await redis.bgrewriteaof();
    await hold(random.int(0, 150));
    const { signal } = await server.kill9();
    await server.restart();
    return signal === 'SIGKILL';
  },
};

/** Cuts workers off from ClickHouse until the backlog is full and requests are refused. */
const backlogFull: Fault = {
  name: 'full backlog',
  touches: ['worker-clickhouse'],
  run: async ({ links, producer, sluice }, random) => {
    const link = links.get('worker-clickhouse');
    link?.blackHole();
    const refused = () =>
      producer.settled.some(({ outcome, settledMs }) => outcome === 'overloaded' && settledMs > from);
    const from = performance.now();
    while (!refused() && performance.now() < from + 8_000) {
      const { baseUrl } = random.pick(sluice.api);
      await producer.sendTo('bulk', baseUrl, fatEvents(producer));
    }
    await hold(random.int(200, 1_000));
    link?.pass();
    return refused();
  },
};

/** The outstanding segments in Redis: their members of the set, and their bytes. */
export type Held = readonly [members: readonly Buffer[], segments: readonly Buffer[]];

const dumpScript = `
local members = redis.call('ZRANGE', KEYS[1], 0, -1)
local segments = {}
local prefix = string.match(KEYS[1], '^{s%d+}:')
for i, member in ipairs(members) do segments[i] = redis.call('GET', prefix .. 'segment:' .. member) or '' end
return { members, segments }`;
/** The arguments of an EVAL that replies with the segments that Redis holds. */
export const dumpOfSegments = (shard: number) => [dumpScript, 1, shardKeys.segments(shard)] as const;

/**
 * Redis loses everything it holds and, half of the time, its files. The same transaction reads what only Redis held, so that exactly that
 * may be missing. Then the state is restored.
 */
export const emptied: Fault = {
  name: 'redis emptied',
  touches: ['redis', 'clickhouse', 'gate'],
  run: async (world, random) => {
    await empty(world, random);
    await restore(world);
    return true;
  },
};

/**
 * The same while ClickHouse has the targets of a pending request. Half of the time Redis stays empty long enough for all upkeep of the
 * workers to run on it.
 */
const emptiedWhilePending: Fault = {
  name: 'redis emptied while a deletion is pending',
  touches: ['redis', 'clickhouse', 'gate'],
  run: async (world, random) => {
    world.gate.refuse(mutationsOfRounds, tooManyQueries);
    const isPending = await until(async () => (await readKeptDeletions(world.sluice)).pending.size > 0, {
      deadlineMs: 20_000,
      what: 'the targets of a pending request are in ClickHouse',
    }).catch(() => false);
    await hold(random.int(0, 1_500));
    const loss = await empty(world, random);
    if (random.int(0, 1) === 1) await hold(random.int(1_500, 4_000));
    world.gate.pass();
    await restore(world);
    return isPending && loss.keptDeletions.size > 0;
  },
};

/** Empties Redis, and notes what only Redis had; `restore` ends that. */
export async function noteEmptied({
  redis,
  sluice,
  shards,
  emptied,
}: Pick<AnyWorld, 'redis' | 'sluice' | 'shards' | 'emptied'>): Promise<Emptied> {
  // Only what ClickHouse has now must come back, although it may have more when Redis is emptied.
  const { all: keptDeletions } = await readKeptDeletions(sluice);
  const fromMs = performance.now();
  const emptying = redis.multi();
  for (let shard = 0; shard < shards; shard += 1) emptying.callBuffer('EVAL', ...dumpOfSegments(shard));
  const replies = (await emptying.flushall().exec()) ?? [];
  const held = replies.slice(0, shards).map((reply) => recordsOf((reply[1] ?? [[], []]) as Held));
  const markers = new Set((await Promise.all(held)).flatMap((records) => [...records.values()]));
  const loss: Emptied = { fromMs, toMs: Number.POSITIVE_INFINITY, markers, keptDeletions };
  emptied.push(loss);
  return loss;
}

export async function empty(world: World, random: Random): Promise<Emptied> {
  const { server } = world;
  const loss = await noteEmptied(world);
  if (random.int(0, 1) === 1) {
    await server.kill9();
    rmSync(join(server.dir, 'appendonlydir'), { recursive: true, force: true });
    await server.restart();
  }
  await hold(random.int(200, 1_000));
  return loss;
}

export async function restore({ sluice, emptied }: Pick<World, 'sluice' | 'emptied'>): Promise<void> {
  await sluice.admin('state', 'reload');
  const last = emptied.at(-1);
  if (last !== undefined) last.toMs = performance.now();
}

/** The markers of the records in Redis, by environment and marker, since environments share markers. */
export async function recordsOf([members, segments]: Held): Promise<Map<string, string>> {
  const all = segments.map((stored, index) => recordsOfSegment(String(members[index]), stored));
  return new Map((await Promise.all(all)).flat().map(([appId, marker]) => [`${appId} ${marker}`, marker]));
}

async function recordsOfSegment(member: string, stored: Buffer): Promise<[appId: string, marker: string][]> {
  if (stored.length === 0) return [];
  const rows = stampRows(await rowsOfStored(stored)).bytes.toString();
  const lines = rows.split('\n').filter((line) => line !== '');
  const values = lines.map((line) => JSON.parse(line) as unknown[]);
  const { table } = segmentOfMember(member);
  const columns = columnsOf(table);
  const valueIn = (row: readonly unknown[], column: string) => row[columns.indexOf(column)];
  if (tableOf(table) === 'user_identities')
    return values.map((row) => [
      String(valueIn(row, 'app_id')),
      `${valueIn(row, 'user_id')} is ${valueIn(row, 'identity')}`,
    ]);
  return values.map((row) => [
    String(valueIn(row, 'app_id')),
    String((valueIn(row, 'properties') as Record<string, unknown>).marker),
  ]);
}

export const redisFaults: readonly Fault[] = [
  scriptFlush,
  memoryFull,
  diskFull,
  powerCut,
  rewrite,
  backlogFull,
  emptied,
  emptiedWhilePending,
];
