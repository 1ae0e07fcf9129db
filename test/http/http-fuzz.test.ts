// Thousands of mutated requests, beside a well-behaved client; `npm run fuzz` runs any number of them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faultsOf, fuzzDeployment } from '../fuzz/deployment.js';
import { describeFault } from '../fuzz/run.js';
import { ownSluice } from '../support/sluice.js';

const sluice = await ownSluice();

test('answers 5,000 mutated requests correctly, and stores only what it acknowledged', async () => {
  const report = await fuzzDeployment(sluice, { seed: 1, count: 5_000 });
  const { fault } = report;
  assert.equal(fault, undefined, fault && describeFault(fault));
  assert.deepEqual(faultsOf(report), []);
});
