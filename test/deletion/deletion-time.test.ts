// How soon a deletion is complete if nothing else is going on. The file runs alone, since it measures time.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sendEvents, submitNow, untilComplete, untilStored } from '../harness/deletion.js';
import { deletionWorld } from '../support/deletion-world.js';

const { sluice, token, main } = await deletionWorld();

test('completes a deletion of one user on an idle service within seconds', async (context) => {
  const took: number[] = [];
  // A busy machine delays some deletions, but rarely all of them, so the quickest one counts.
  for (let round = 0; round < 5 && (took.at(-1) ?? Infinity) > 10_000; round += 1) {
    await sendEvents(sluice, main, 'go', [{ identity: `idle ${round}` }]);
    await untilStored(sluice);
    const started = performance.now();
    const requestId = await submitNow(sluice, token, [{ identity: `idle ${round}` }]);
    await untilComplete(sluice, token, requestId);
    took.push(performance.now() - started);
  }
  const quickestMs = Math.min(...took);
  context.diagnostic(`quickest ${Math.round(quickestMs)} ms, slowest ${Math.round(Math.max(...took))} ms`);
  assert.ok(quickestMs <= 10_000, `quickest ${quickestMs} ms`);
});
