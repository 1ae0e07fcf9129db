// A process that stalls while Redis answers its commit.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commits } from '../../src/contract/limits.js';
import { eventRecord, group, startCommitter } from '../support/shard.js';

let standsStill = false;
const { submit } = await startCommitter({
  crash: (point) => {
    if (point !== 'commit_sent' || !standsStill) return;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, commits.deadlineMs + 200);
  },
});

test('a reply still counts if it came while the process stood still for longer than a commit may take', async () => {
  // Makes Redis know the script: it would refuse the first call.
  await submit(group([eventRecord('a')]));
  standsStill = true;
  assert.deepEqual(await submit(group([eventRecord('a')])), { kind: 'committed', letters: 's' });
});
