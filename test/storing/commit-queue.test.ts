// Which requests share a commit, and in which order they get there.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commits } from '../../src/contract/limits.js';
import { createCommitQueue, type Queued } from '../../src/ingest/commit-queue.js';
import { commitBatches } from '../../src/tuning.js';
import fc from '../support/fast-check.js';

type Request = Queued & { readonly name: string };

const small = (accountId: string, name: string): Request => ({
  accountId,
  name,
  records: commitBatches.smallRecordsMax,
  decisions: 1,
  bytes: 1,
});
const large = (accountId: string, name: string): Request => ({
  ...small(accountId, name),
  records: commitBatches.smallRecordsMax + 1,
});
const names = (batch: readonly Request[]) => batch.map(({ name }) => name).join();

test('a small request is committed right after the large commit that is under way, whatever else waits', () => {
  const queue = createCommitQueue<Request>();
  for (let i = 0; i < 100; i++) queue.add({ ...large('A', `a${i}`), decisions: commitBatches.decisionsMax });
  assert.equal(names(queue.take()), 'a0');
  queue.add(small('B', 'b0'));
  queue.add(small('C', 'c0'));
  assert.equal(names(queue.take()), 'b0,c0');
  assert.equal(names(queue.take()), 'a1');
  queue.add(small('B', 'b1'));
  assert.equal(names(queue.take()), 'b1');
  assert.equal(queue.size(), 98);
});

test('large requests wait for one commit of small ones at most, and accounts take turns', () => {
  const queue = createCommitQueue<Request>();
  const full = { decisions: commitBatches.decisionsMax };
  for (const name of ['a0', 'a1', 'a2']) queue.add({ ...large('A', name), ...full });
  queue.add({ ...large('B', 'b0'), ...full });
  const seen: string[] = [];
  for (let i = 0; i < 8; i++) {
    queue.add(small('C', `c${i}`));
    seen.push(names(queue.take()));
  }
  assert.deepEqual(seen, ['a0', 'c0,c1', 'b0', 'c2,c3', 'a1', 'c4,c5', 'a2', 'c6,c7']);
});

test('large requests of one account share a commit as far as they fit', () => {
  const queue = createCommitQueue<Request>();
  for (let i = 0; i < 5; i++) queue.add({ ...large('A', `a${i}`), records: commitBatches.recordsMax / 4 });
  assert.equal(names(queue.take()), 'a0,a1,a2,a3');
  assert.equal(names(queue.take()), 'a4');
  assert.deepEqual(queue.take(), []);
});

test('a request that exceeds a bound alone gets a commit of its own', () => {
  const queue = createCommitQueue<Request>();
  queue.add({ ...small('A', 'a0'), bytes: 2 * commitBatches.bytesMax });
  queue.add(small('A', 'a1'));
  assert.equal(names(queue.take()), 'a0');
  assert.equal(names(queue.take()), 'a1');
});

test('an account leaves room for the others, however much it sends', () => {
  const queue = createCommitQueue<Request>();
  const sends = (accountId: string, bytes: number) => queue.add({ ...small(accountId, ''), bytes });
  const eighth = commits.waitingBytesMax / 8;
  assert.deepEqual(
    Array.from({ length: 6 }, () => sends('A', eighth)),
    [true, true, true, true, false, false],
  );
  assert.deepEqual(
    [sends('B', 2 * eighth), sends('B', 1), sends('C', eighth), sends('D', 1)],
    [true, false, true, true],
  );
  while (queue.size() > 0) queue.take();
  assert.equal(queue.bytes(), 0);
  const most = [sends('A', 2 * eighth), sends('A', commits.groupBytesMax), sends('A', 1)];
  assert.deepEqual([...most, sends('B', eighth)], [true, true, false, true], 'a quarter stays free');
});

test('every request is committed once, after the earlier ones of its account, within the bounds', () => {
  const request = fc.record({
    accountId: fc.constantFrom('A', 'B', 'C'),
    records: fc.integer({ min: 1, max: commitBatches.recordsMax }),
    decisions: fc.integer({ min: 1, max: commitBatches.decisionsMax }),
    bytes: fc.integer({ min: 1, max: commitBatches.bytesMax }),
  });
  const steps = fc.array(fc.oneof(request, fc.constant('take' as const)), { maxLength: 80 });
  fc.assert(
    fc.property(steps, (given) => {
      const queue = createCommitQueue<Request>();
      const added: Request[] = [];
      const taken: Request[] = [];
      const take = () => {
        const batch = queue.take();
        assert.equal(batch.length > 0, taken.length < added.length);
        for (const bound of ['records', 'decisions', 'bytes'] as const)
          assert.ok(batch.reduce((sum, each) => sum + each[bound], 0) <= commitBatches[`${bound}Max`]);
        const accounts = new Set(batch.map(({ accountId }) => accountId));
        const isLarge = batch.some(({ records }) => records > commitBatches.smallRecordsMax);
        assert.ok(!isLarge || accounts.size === 1);
        taken.push(...batch);
      };
      for (const [i, step] of given.entries()) {
        if (step === 'take') take();
        else {
          const named = { ...step, name: String(i) };
          if (queue.add(named)) added.push(named);
        }
      }
      while (queue.size() > 0) take();
      const of = (list: readonly Request[], account: string) =>
        names(list.filter(({ accountId }) => accountId === account));
      for (const account of ['A', 'B', 'C']) assert.equal(of(taken, account), of(added, account));
    }),
  );
});
