// The first passing of each crash point in the code, under load and deletions, unless the tests of its subject cover it. Those and later
// passings are in `chaos-crash-repeats`, crashes with a loss of Redis in `chaos-crash-losses`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crashKinds } from '../chaos/faults.js';
import { firstCrashes, laterCrashes, slowCrashes } from '../chaos/faults-crashes.js';
import { crashSchedules, faultsOf, losesRedis } from '../chaos/schedule.js';
import { testCrashes } from '../support/crash-rounds.js';

const schedules = crashSchedules(firstCrashes);

test('the rounds of all files have every crash once, except the slow ones', () => {
  const losses = crashSchedules(crashKinds).filter(losesRedis);
  assert.deepEqual(
    [...schedules, ...crashSchedules(laterCrashes), ...losses].flatMap(faultsOf).sort(),
    crashKinds.filter((name) => !slowCrashes.has(name)).sort(),
  );
});

testCrashes(schedules);
