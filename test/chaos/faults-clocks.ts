// Processes whose clock is wrong: one runs with another time for a while, then with the right one again.

import { readFileSync } from 'node:fs';
import { shardKeys } from '../../src/redis/keys.js';
import type { Fault, Part } from './fault.js';
import { hold } from './fault.js';
import { childOf, disturb } from './faults-processes.js';
import { faketimeLibrary } from './tools.js';

const hour = 3_600;

/** Offsets in seconds. */
const offsets = [-hour, -90, 90, hour];

const clocks: readonly (readonly [name: string, parts: readonly Part[]])[] = [
  ['clock of api', ['api-1', 'api-2']],
  ['clock of worker', ['worker-1', 'worker-2']],
];

/**
 * Redis's clock was ahead and is set back, as the scripts see it: by what they remember of it. libfaketime
 * itself deadlocks with the allocator of Debian's Redis.
 */
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

const offsetFaults = clocks.flatMap(([name, parts]) =>
  parts.map(
    (part): Fault => ({
      name,
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
  ),
);

export const clockFaults: readonly Fault[] = [...offsetFaults, redisSetBack];
