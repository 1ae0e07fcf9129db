// Buffers are reused, but never while the rows in them may still be sent.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSpareBuffers } from '../../src/spare-buffers.js';
import { eventRecord, group, startCommitter } from '../support/shard.js';

const { redis, submit } = await startCommitter();

test('a buffer that was given back is used again if it is large enough, and only a limited number are kept', () => {
  const spares = createSpareBuffers(1600, 1);
  const [one, other] = [spares.take(400), spares.take(1600)];
  assert.notEqual(one, other);
  for (const bytes of [99, 399, 1601]) {
    const apart = spares.take(bytes);
    assert.equal(apart.length, bytes);
    spares.give(apart);
  }
  spares.give(other);
  spares.give(one);
  assert.equal(spares.take(800), other);
  assert.notEqual(spares.take(800), one);
});

test('the buffer of a commit is used again once its only copy is answered, and never if it was sent twice', async (t) => {
  const records = Array.from({ length: 1000 }, (_, i) => eventRecord(`event ${i} ${'x'.repeat(400)}`));
  const stored = { kind: 'committed', letters: 's'.repeat(records.length) };
  // Makes Redis know the script: it would refuse the first call.
  assert.deepEqual(await submit(group(records)), stored);
  const evalsha = redis.evalsha.bind(redis) as (...args: unknown[]) => Promise<unknown>;
  const sent: ArrayBufferLike[] = [];
  let isLost = false;
  t.mock.method(redis, 'evalsha', async (...args: unknown[]) => {
    const [rows] = args.filter((arg) => Buffer.isBuffer(arg)).toSorted((a, b) => b.length - a.length);
    sent.push((rows as Buffer).buffer);
    const reply = await evalsha(...args);
    if (!isLost) return reply;
    isLost = false;
    return new Promise(() => undefined);
  });
  assert.deepEqual(await submit(group(records)), stored);
  isLost = true;
  assert.deepEqual(await submit(group(records)), stored);
  for (let i = 0; i < 2; i++) assert.deepEqual(await submit(group(records)), stored);
  const [first, lost, repeated, next, last] = sent;
  assert.deepEqual(
    [lost === first, repeated === first, next === first, last === next],
    [true, true, false, true],
  );
  assert.equal(sent.length, 5);
});
