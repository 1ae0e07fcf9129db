// The disk of Redis, of ClickHouse, or of both is full for a while, and meanwhile processes are killed. All clients continue.

import { storedTable } from '../../src/clickhouse/tables.js';
import { tables } from '../../src/contract/records.js';
import { type Fault, hold, type World } from './fault.js';
import { childOf, disturb, killEverythingOf } from './faults-processes.js';
import { emptied } from './faults-redis.js';
import type { ProcessPart } from './parts.js';
import type { Random } from './random.js';

/** ClickHouse removes the parts that a merge replaced after 10 s: only then a truncated result of the merge would show. */
const untilOldPartsGoMs = 12_500;

const stores = ['redis', 'clickhouse'] as const;

/**
 * Keeps the disk full for `ms` after `during`, even if a store frees some of it. A store that ended or was killed meanwhile is started
 * when there is room again. Settles with whether the disk was full.
 */
async function whileFull(
  world: World,
  random: Random,
  ms: number,
  during: () => Promise<void>,
): Promise<boolean> {
  const { disk } = world;
  disk.fill(leftForMergesBytes);
  mergeEverything(world);
  await hold(random.int(0, 40));
  disk.fill();
  const isFull = disk.freeBytes() < 64 * 1024;
  const filling = setInterval(() => disk.fill(), 50);
  try {
    await during();
    await hold(ms);
  } finally {
    clearInterval(filling);
    disk.free();
    await Promise.all(
      stores.map((part) => childOf(world, part)).map(async (child) => child.running || child.restart()),
    );
  }
  return isFull;
}

/** Enough room for merges to begin; the disk is then filled while they run. */
const leftForMergesBytes = 32 * 1024 * 1024;

/** Begins to merge all tables. Does not wait for the end, since merges may fail. */
function mergeEverything({ clickhouse, sluice }: World): void {
  for (const table of tables)
    clickhouse
      .query(`OPTIMIZE TABLE ${sluice.database}.${storedTable(table)} FINAL`)
      .catch(() => 'on a full disk it fails');
}

function diskFault(
  name: string,
  msOf: (random: Random) => number,
  during: (world: World, random: Random) => Promise<void> = async () => undefined,
): Fault {
  return {
    name,
    // It touches everything, so that no other fault happens at the same time.
    touches: [...stores, 'worker-1', 'worker-2', 'api-1', 'api-2', 'gate'],
    needs: 'mount',
    run: (world, random) => whileFull(world, random, msOf(random), () => during(world, random)),
  };
}

/** Kills one of our processes on the full disk, and restarts it at once, or a store, which starts when there is room again. */
function killOnFullDisk(kind: string, parts: readonly ProcessPart[]): Fault {
  return diskFault(
    `${kind} killed on a full disk`,
    (random) => random.int(500, 3_000),
    async (world, random) => {
      await hold(random.int(0, 1_500));
      const part = random.pick(parts);
      disturb(world, part);
      const child = childOf(world, part);
      await child.kill9();
      if (part !== 'redis' && part !== 'clickhouse') await child.restart();
    },
  );
}

const short = (random: Random) => random.int(300, 3_000);

export const diskFaults: readonly Fault[] = [
  diskFault('briefly full disk', short),
  diskFault('full disk until old parts are gone', () => untilOldPartsGoMs),
  killOnFullDisk('worker', ['worker-1', 'worker-2']),
  killOnFullDisk('api', ['api-1', 'api-2']),
  killOnFullDisk('redis', ['redis']),
  killOnFullDisk('clickhouse', ['clickhouse']),
  diskFault(
    'clickhouse killed on a disk that is full until old parts are gone',
    () => 0,
    async (world) => {
      await hold(untilOldPartsGoMs);
      await world.clickhouse.kill9();
    },
  ),
  killEverythingOf(['api-1', 'api-2', 'worker-1', 'worker-2', ...stores]),
  // The state is restored from ClickHouse.
  emptied,
];
