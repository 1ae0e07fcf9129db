// Every crash point of the code, at its first, second and third passing, under load and deletions; then what the clients
// were told is compared with what is stored. Third passings in rounds of deletions would take minutes more, so only `npm
// run chaos -- --crash-points` has them.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { crashKinds } from '../chaos/faults.js';
import { slowCrashes } from '../chaos/faults-crashes.js';
import { countFaults, describeFailure, describeRound } from '../chaos/report.js';
import { readCommit } from '../chaos/results.js';
import type { RoundResult } from '../chaos/round.js';
import { createRunner } from '../chaos/runner.js';
import { crashSchedules } from '../chaos/schedule.js';

const runner = createRunner();
const results: RoundResult[] = [];

after(() => runner.close());

const names = crashKinds.filter((name) => !slowCrashes.has(name));

for (const [index, schedule] of crashSchedules(names).entries()) {
  test(`keeps every promise through crashes, part ${index + 1}`, async (context) => {
    const result = await runner.run(schedule);
    results.push(result);
    context.diagnostic(describeRound(result));
    assert.equal(result.broken.length, 0, describeFailure(result, readCommit()));
  });
}

test('every crash point was passed, and the process died there', () => {
  const counts = countFaults(results);
  assert.deepEqual(
    names.filter((name) => counts.get(name) !== 1),
    [],
  );
});
