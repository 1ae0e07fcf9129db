// The disk of Redis, of ClickHouse, or of both is full for a while, and meanwhile processes are killed. Every client goes on.

import { type Fault, hold, type World } from './fault.js';
import { childOf, disturb, killEverythingOf } from './faults-processes.js';
import { emptied } from './faults-redis.js';
import type { ProcessPart } from './parts.js';
import type { Random } from './random.js';

/** ClickHouse removes the parts that a merge replaced after 10 s, so a merge that was cut would be noticed then. */
const untilOldPartsGoMs = 12_500;

const stores = ['redis', 'clickhouse'] as const;

/**
 * Fills the disk for `ms`, and again when somebody has freed some of it. A store that cannot write ends, or is killed: once there is room,
 * it is started again. Settles with whether there was no room.
 */
async function whileFull(world: World, ms: number, during: () => Promise<void>): Promise<boolean> {
  const { disk } = world;
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

function diskFault(
  name: string,
  msOf: (random: Random) => number,
  during: (world: World, random: Random) => Promise<void> = async () => undefined,
): Fault {
  return {
    name,
    // It touches everything: one at a time.
    touches: [...stores, 'worker-1', 'worker-2', 'api-1', 'api-2', 'gate'],
    needs: 'mount',
    run: (world, random) => whileFull(world, msOf(random), () => during(world, random)),
  };
}

/** Kills a process of ours on the full disk, which starts again at once, or a store, which comes back when there is room. */
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
  // It is restored from what ClickHouse has.
  emptied,
];
