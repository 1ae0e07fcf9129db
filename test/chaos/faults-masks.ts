// Faults while users are hidden but not erased yet: erasing passes are held up during the faults of other tracks, while parts are merged or
// while a shard moves; and ClickHouse is killed in a pass.

import { userTables } from '../../src/privacy/deletion/user-tables.js';
import { registryKeys } from '../../src/redis/keys.js';
import { until } from '../harness/wait.js';
import { type AnyWorld, type Fault, hold, type Part } from './fault.js';
import { moveOfShard } from './faults-moves.js';
import { childOf } from './faults-processes.js';
import type { ProcessPart } from './parts.js';
import { look, lossesOf } from './sights.js';

const hiddenMsMax = 30_000;

/**
 * Holds up passes, waits for hidden users, does `work` and looks whether any query shows these users, which none may. Then lets a pass
 * erase them. Settles with whether there were hidden users.
 */
async function whileHidden(world: AnyWorld, work: () => Promise<unknown>): Promise<boolean> {
  const { redis } = world;
  await redis.set(registryKeys.erasureRest, '1', 'PX', 4 * hiddenMsMax);
  try {
    const read = () => redis.zrange(registryKeys.hiddenDeletions, '0', '-1');
    const areHidden = async () => (await read()).length > 0;
    const found = await until(areHidden, { deadlineMs: hiddenMsMax, what: 'users are hidden' }).catch(
      () => false,
    );
    const [before, losses] = [await read(), lossesOf(world)];
    await work();
    const after = new Set(await read());
    const ids = before.filter((member) => after.has(member)).map((member) => member.split(' ')[1] ?? '');
    await look(world, 'shown though hidden', new Set(ids), losses).catch(() => undefined); // ClickHouse may be away.
    return found;
  } finally {
    await redis.del(registryKeys.erasureRest, registryKeys.deletionRound);
  }
}

export function maskFaults(servers: readonly ProcessPart[]): readonly Fault<AnyWorld>[] {
  const touches: readonly Part[] = ['passes', ...servers];
  const move: Fault<AnyWorld> = {
    name: 'shard moved while users are hidden',
    touches: ['shards', ...touches],
    run: (world, random) => whileHidden(world, () => moveOfShard.run(world, random)),
  };
  return [
    {
      name: 'passes rest',
      touches: ['passes'],
      run: (world, random) => whileHidden(world, () => hold(random.int(1_000, 6_000))),
    },
    {
      name: 'parts merged while users are hidden',
      touches,
      run: (world) =>
        whileHidden(world, async () => {
          const { clickhouses, database } = world.sluice;
          for (const server of clickhouses)
            for (const table of userTables) await server.query(`OPTIMIZE TABLE ${database}.${table} FINAL`);
        }),
    },
    {
      name: 'clickhouse killed in a pass',
      touches,
      run: async (world, random) => {
        await whileHidden(world, () => hold(random.int(0, 2_000)));
        const begins = async () => (await world.redis.exists(registryKeys.erasurePass)) === 1;
        const deadline = { deadlineMs: hiddenMsMax, what: 'a pass begins', everyMs: 2 };
        const begun = await until(begins, deadline).catch(() => false);
        await hold(random.int(0, 60));
        const server = childOf(world, random.pick(servers));
        await server.kill9();
        await server.restart();
        return begun;
      },
    },
    ...(servers.length > 1 ? [move] : []),
  ];
}
