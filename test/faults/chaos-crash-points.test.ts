// Every crash point of the code, at its first, second and third passing, under load and deletions. Third passings in
// rounds of deletions would take minutes more, so only `npm run chaos -- --crash-points` has them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crashKinds } from '../chaos/faults.js';
import { slowCrashes } from '../chaos/faults-crashes.js';
import { crashSchedules, losesRedis } from '../chaos/schedule.js';
import { testCrashes } from '../support/crash-rounds.js';

const names = crashKinds.filter((name) => !slowCrashes.has(name));
const schedules = crashSchedules(names);

test('the rounds here and those with a loss of Redis have every crash once', () => {
  const planned = schedules.flatMap(({ steps }) => steps.flat(2)).map(({ fault }) => fault);
  assert.deepEqual(planned.sort(), [...names].sort());
});

testCrashes(schedules.filter((schedule) => !losesRedis(schedule)));
