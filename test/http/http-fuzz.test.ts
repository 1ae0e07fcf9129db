// Thousands of mutated requests, beside a well-behaved client; `npm run fuzz` runs any number of them.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { faultsOf, fuzzDeployment } from '../fuzz/deployment.js';
import { describeFault } from '../fuzz/run.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';

let sluice: SluiceHandle;

before(async () => {
  sluice = await startSluice();
});
after(() => sluice?.stop());

test('answers 5,000 mutated requests correctly, and stores only what it acknowledged', async () => {
  const report = await fuzzDeployment(sluice, { seed: 1, count: 5_000 });
  const { fault } = report;
  assert.equal(fault, undefined, fault && describeFault(fault));
  assert.deepEqual(faultsOf(report), []);
});
