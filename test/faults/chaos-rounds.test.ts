// Some rounds of random faults; a failure names the seed that replays it. Hundreds of rounds are run by hand: `npm run
// chaos -- --rounds 200`.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { seedOf } from '../chaos/random.js';
import { describeFailure, describeRound } from '../chaos/report.js';
import { readCommit } from '../chaos/results.js';
import { createRunner } from '../chaos/runner.js';
import { randomSchedule } from '../chaos/schedule.js';
import { findTools } from '../chaos/tools.js';
import { testSeed } from '../support/seed.js';

const rounds = 3;
const runner = createRunner();
const tools = new Set(await findTools());
// These rounds never cut the power of ClickHouse, which needs this tool; faults-disk.test.ts does.
tools.delete('loop');

after(() => runner.close());

for (let round = 1; round <= rounds; round += 1) {
  test(`keeps every promise through random faults, round ${round}`, async (context) => {
    const result = await runner.run(randomSchedule(seedOf(testSeed, round), tools));
    context.diagnostic(describeRound(result));
    assert.equal(result.broken.length, 0, describeFailure(result, readCommit()));
  });
}
