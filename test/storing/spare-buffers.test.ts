// Buffers are reused, but never while the rows in them may still be sent.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSpareBuffers } from '../../src/spare-buffers.js';
import { eventRecord, group, startCommitter } from '../support/shard.js';

const { redis, submit } = await startCommitter();

test('a buffer that was given back is used again for about as many bytes, once', () => {
  const spares = createSpareBuffers({ bytesMin: 250, stepBytes: 1000, keptBytesMax: 4000 });
  const [one, other] = [spares.take(1001), spares.take(2000)];
  assert.deepEqual([one.length, other.length, spares.sizeFor(1001)], [2000, 2000, 2000]);
  assert.notEqual(one, other);
  for (let i = 0; i < 2; i++) spares.give(one.subarray(0, 1001));
  assert.deepEqual(
    [1000, 2001].map((bytes) => spares.take(bytes) === one),
    [false, false],
  );
  assert.equal(spares.take(1500), one);
  assert.notEqual(spares.take(1500), one);
});

test('only so many bytes are kept, those that were given last, and none from elsewhere', () => {
  const spares = createSpareBuffers({ bytesMin: 250, stepBytes: 1000, keptBytesMax: 4000 });
  const taken = [3000, 2000, 2000].map((bytes) => spares.take(bytes));
  for (const each of [...taken, Buffer.alloc(1000)]) spares.give(each);
  assert.deepEqual([2000, 2000].map(spares.take), [taken[2], taken[1]]);
  for (const [i, bytes] of [3000, 1000].entries()) assert.notEqual(spares.take(bytes), taken[i]);
  for (const bytes of [249, 4001]) {
    const apart = spares.take(bytes);
    assert.equal(apart.length, bytes);
    spares.give(apart);
    assert.notEqual(spares.take(bytes), apart);
  }
});

test('a large command is written piece by piece, in its place among others', async () => {
  const large = Buffer.alloc(300_000, 'ä');
  const values = [
    'before',
    large,
    'between',
    Buffer.alloc(0),
    large.subarray(1, 100_001),
    'ü'.repeat(20_000),
  ];
  const replies = values.map((value) => redis.echo(value as string));
  const inPipeline = redis
    .pipeline()
    .echo('one')
    .echo(large as never)
    .echo('two')
    .exec();
  const buffers = await Promise.all(values.map((value) => redis.echoBuffer(value as string)));
  assert.ok(buffers.every((buffer, i) => buffer.equals(Buffer.from(values[i] as string))));
  assert.deepEqual(await Promise.all(replies), values.map(String));
  assert.deepEqual(await inPipeline, [
    [null, 'one'],
    [null, String(large)],
    [null, 'two'],
  ]);
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
