// A round on three Redis masters and three ClickHouse servers: of each kind of process one is killed or frozen, a master and a
// server are cut off, and a shard moves meanwhile. Rounds at random are run by hand: `npm run chaos -- --three --rounds 20`.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { describeFailure, describeRound } from '../chaos/report.js';
import { readCommit } from '../chaos/results.js';
import { createRunner } from '../chaos/runner.js';
import type { Schedule } from '../chaos/schedule.js';

const runner = createRunner('three');

after(() => runner.close());

/** Faults at the same time, each with its variant: which of the processes or connections it affects. */
const step = (...faults: readonly (readonly [fault: string, variant: number])[]) =>
  faults.map(([fault, variant], index) => [{ fault, variant, seed: index + 1 }]);

const schedule: Schedule = {
  seed: 1,
  steps: [
    step(['shard moved', 0], ['kill redis', 0], ['stop clickhouse', 2]),
    step(['kill clickhouse', 1], ['silence to redis', 1], ['kill api', 0]),
    step(['cut to clickhouse', 0], ['stop redis', 2], ['kill worker', 0]),
  ],
};

test('keeps every promise while masters, servers and processes of ours are killed, frozen and cut off', async (context) => {
  const result = await runner.run(schedule);
  context.diagnostic(describeRound(result));
  assert.equal(result.broken.length, 0, describeFailure(result, readCommit()));
  const notDone = result.done.filter(({ fault, error }) => fault !== 'shard moved' && error !== undefined);
  assert.deepEqual(notDone, []);
});
