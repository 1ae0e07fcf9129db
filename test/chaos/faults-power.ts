// Cuts the power of ClickHouse's machine, so that its files keep only what was synced. That must include everything that ClickHouse had
// confirmed, since Redis has forgotten it.

import { type Fault, hold, type World } from './fault.js';
import { forgetKeys, repeatKeyed, sendKeyed } from './faults-clocks.js';

async function cutPower({ clickhouse, cutDisk }: World, awayMs: number): Promise<void> {
  if (cutDisk === undefined) throw new Error("the power of this ClickHouse's disk cannot be cut");
  // Paused, so that ClickHouse confirms nothing after the cut.
  clickhouse.sigstop();
  await cutDisk.cut(() => clickhouse.kill9());
  await hold(awayMs);
  await clickhouse.restart();
}

const powerCut: Fault = {
  name: 'power cut of clickhouse',
  touches: ['clickhouse', 'gate'],
  needs: 'loop',
  run: async (world, random) => {
    const before = await sendKeyed(world, random);
    await hold(random.int(0, 1_500));
    await cutPower(world, random.int(0, 800));
    await repeatKeyed(world, before, random);
    return before.length > 0;
  },
};

/** Cuts the power while keys are indexed and Redis forgets them: the index must have all that Redis has forgotten. */
const powerCutWhileForgetting: Fault = {
  name: 'power cut of clickhouse while keys are forgotten',
  touches: ['worker-1', 'worker-2', 'redis', 'clickhouse', 'gate'],
  needs: 'loop',
  run: async (world, random) => {
    const before = await sendKeyed(world, random);
    const forgotten = forgetKeys(world, before, random);
    await hold(random.int(0, 2_000));
    await cutPower(world, random.int(0, 800));
    const isGone = await forgotten;
    await repeatKeyed(world, before, random);
    return isGone;
  },
};

export const powerFaults: readonly Fault[] = [powerCut, powerCutWhileForgetting];
