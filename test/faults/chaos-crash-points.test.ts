// Every crash point of the code at its first passing, under load and deletions. `chaos-crash-repeats` has the later passings, and
// `chaos-crash-losses` the crashes with a loss of Redis.

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
