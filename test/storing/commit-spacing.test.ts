// Requests that keep coming share commits, also when Redis answers faster than they come.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CommitResult } from '../../src/ingest/attempts.js';
import { commitBatches } from '../../src/tuning.js';
import { eventRecord, group, startCommitter } from '../support/shard.js';

let made = 0;
const { submit } = await startCommitter({
  crash: (point) => {
    if (point === 'commit_packed') made += 1;
  },
});

test('requests that keep coming share commits: each has several times as many as come while Redis answers', async () => {
  const one = () => submit(group([eventRecord('a')]));
  // Makes Redis know the script: it would refuse the first call.
  await one();
  made = 0;
  const turns = 300;
  const answers: Promise<CommitResult>[] = [];
  const startedAt = performance.now();
  // Two requests every millisecond, while an answer takes a third of one.
  for (let turn = 0; turn < turns; turn += 1) {
    answers.push(one(), one());
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  for (const answer of await Promise.all(answers))
    assert.deepEqual(answer, { kind: 'committed', letters: 's' });
  const ms = performance.now() - startedAt;
  // On a slow machine a turn takes longer than the spacing of commits, and each turn may have its own commit.
  const most = Math.max(turns / 2, ms / commitBatches.spacingMs + 20);
  assert.ok(made <= most, `${made} commits in ${turns} turns and ${ms} ms`);
});
