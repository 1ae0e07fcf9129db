// Rounds of chaos with crashes as tests: every crash must happen, and every promise to the clients must be kept.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { countFaults, describeFailure, describeRound } from '../chaos/report.js';
import { readCommit } from '../chaos/results.js';
import type { RoundResult } from '../chaos/round.js';
import { createRunner } from '../chaos/runner.js';
import { faultsOf, type Schedule } from '../chaos/schedule.js';

/** Defines a test for each schedule, and one that checks that every process died where it had to. */
export function testCrashes(schedules: readonly Schedule[]): void {
  const runner = createRunner();
  const results: RoundResult[] = [];
  after(() => runner.close());

  for (const [index, schedule] of schedules.entries()) {
    test(`keeps every promise through crashes, part ${index + 1}`, async (context) => {
      const result = await runner.run(schedule);
      results.push(result);
      context.diagnostic(describeRound(result));
      assert.equal(result.broken.length, 0, describeFailure(result, readCommit()));
    });
  }

  test('every crash point was passed, and the process died there', () => {
    const counts = countFaults(results);
    const names = schedules.flatMap(faultsOf);
    assert.ok(names.length > 0);
    assert.deepEqual(
      names.filter((name) => counts.get(name) !== 1),
      [],
    );
  });
}
