// The commits of a process: how many requests share one, and that each ends in time.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commits } from '../../src/contract/limits.js';
import type { CommitResult } from '../../src/ingest/attempts.js';
import { commitBatches } from '../../src/tuning.js';
import { eventRecord, group, startCommitter } from '../support/shard.js';

let standsStill = false;
let made = 0;
const { submit } = await startCommitter({
  crash: (point) => {
    if (point === 'commit_packed') made += 1;
    if (point !== 'commit_sent' || !standsStill) return;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, commits.deadlineMs + 200);
  },
});
const ofNewPrimary = await startCommitter({ primary: { id: () => 'another' } });
const one = () => group([eventRecord('a')]);
const stored: CommitResult = { kind: 'committed', letters: 's' };
// Makes Redis know the script: it would refuse the first call.
await submit(one());

test('requests that keep coming share commits: each has several times as many as come while Redis answers', async () => {
  made = 0;
  const turns = 300;
  const answers: Promise<CommitResult>[] = [];
  const startedAt = performance.now();
  // Two requests every millisecond, while an answer takes a third of one.
  for (let turn = 0; turn < turns; turn += 1) {
    answers.push(submit(one()), submit(one()));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  for (const answer of await Promise.all(answers)) assert.deepEqual(answer, stored);
  const ms = performance.now() - startedAt;
  // On a slow machine a turn takes longer than the spacing of commits, and each turn may have its own commit.
  const most = Math.max(turns / 2, ms / commitBatches.spacingMs + 20);
  assert.ok(made <= most, `${made} commits in ${turns} turns and ${ms} ms`);
});

test('a reply still counts if it came while the process stood still for longer than a commit may take', async () => {
  standsStill = true;
  assert.deepEqual(await submit(one()), stored);
  standsStill = false;
});

test('a commit is refused in time though a new primary does not say whether it has the earlier ones', {
  timeout: 30_000,
}, async (t) => {
  t.mock.method(ofNewPrimary.redis, 'hget', () => new Promise(() => undefined));
  const refused: CommitResult = { kind: 'overloaded', reason: 'redis_unreachable' };
  assert.deepEqual(await ofNewPrimary.submit(one()), refused);
});
