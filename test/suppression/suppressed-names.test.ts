// The parts of suppression that need no service: the keyed hash, and the compact set.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { createNameSet, type NameHash } from '../../src/privacy/suppression/name-set.js';
import {
  createNameHasher,
  inEnvironment,
  readName,
  textOfHash,
} from '../../src/privacy/suppression/names.js';
import { createSipHash, type SipHash } from '../../src/privacy/suppression/siphash.js';
import fc from '../support/fast-check.js';

/** SipHash-1-3-128 in 64-bit words, written as in its specification. */
function referenceHash(key: Buffer, bytes: Buffer): readonly [bigint, bigint] {
  const word = (value: bigint) => BigInt.asUintN(64, value);
  const turned = (value: bigint, bits: bigint) => word(value << bits) | (value >> (64n - bits));
  const [k0, k1] = [key.readBigUInt64LE(0), key.readBigUInt64LE(8)];
  let [a, b, c, d] = [
    k0 ^ 0x736f6d6570736575n,
    k1 ^ 0x646f72616e646f6dn ^ 0xeen,
    k0 ^ 0x6c7967656e657261n,
    k1 ^ 0x7465646279746573n,
  ];
  const rounds = (count: number) => {
    for (let i = 0; i < count; i++) {
      a = word(a + b);
      b = turned(b, 13n) ^ a;
      a = turned(a, 32n);
      c = word(c + d);
      d = turned(d, 16n) ^ c;
      a = word(a + d);
      d = turned(d, 21n) ^ a;
      c = word(c + b);
      b = turned(b, 17n) ^ c;
      c = turned(c, 32n);
    }
  };
  const padded = Buffer.alloc(8 * Math.floor(bytes.length / 8) + 8);
  bytes.copy(padded);
  padded[padded.length - 1] = bytes.length % 256;
  for (let at = 0; at < padded.length; at += 8) {
    const message = padded.readBigUInt64LE(at);
    d ^= message;
    rounds(1);
    a ^= message;
  }
  c ^= 0xeen;
  rounds(3);
  const first = a ^ b ^ c ^ d;
  b ^= 0xddn;
  rounds(3);
  return [first, a ^ b ^ c ^ d];
}

function wordsOf(hashed: SipHash): NameHash {
  return [hashed.first(), hashed.second(), hashed.third()];
}

test('the hash of any bytes is that of the specification of SipHash-1-3', () => {
  const bytes = fc.uint8Array({ maxLength: 80 }).map((array) => Buffer.from(array));
  const key = fc.uint8Array({ minLength: 16, maxLength: 16 }).map((array) => Buffer.from(array));
  fc.assert(
    fc.property(key, bytes, fc.nat(9), (key, text, offset) => {
      const sip = createSipHash(key);
      // All keys hash in the same memory, so another key hashes in between.
      createSipHash(Buffer.from(key).reverse()).hash(text, 0, text.length);
      sip.hash(
        Buffer.concat([Buffer.alloc(offset, 7), text, Buffer.from('rest')]),
        offset,
        offset + text.length,
      );
      const [low, high] = referenceHash(key, text);
      const expected = [low, low >> 32n, high].map((word) => Number(BigInt.asIntN(32, word)));
      assert.deepEqual(wordsOf(sip), expected);
    }),
    { numRuns: 300 },
  );
  // Otherwise all texts that begin alike would hash alike.
  const tooLong = Buffer.alloc(2 ** 16);
  assert.throws(() => createSipHash(Buffer.alloc(16)).hash(tooLong, 0, tooLong.length), RangeError);
});

test('a set holds what was added and not removed, in one scope or in all', () => {
  const hasher = createNameHasher('secret', '1');
  const step = fc.record({ add: fc.boolean(), name: fc.nat(60), scope: fc.nat(2) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 400 }), (steps) => {
      const set = createNameSet();
      const model = new Set<string>();
      for (const { add, name, scope } of steps) {
        const hash = wordsOf(hasher.ofIdentity(`user ${name}`));
        if (add) set.add(hash, scope);
        else set.remove(hash, scope);
        if (add) model.add(`${name} ${scope}`);
        else model.delete(`${name} ${scope}`);
      }
      assert.equal(set.size(), model.size);
      for (let name = 0; name <= 60; name++) {
        for (const scope of [1, 2]) {
          const expected = model.has(`${name} ${scope}`) || model.has(`${name} 0`);
          assert.equal(set.has(hasher.ofIdentity(`user ${name}`), scope), expected, `${name} in ${scope}`);
        }
      }
    }),
    { numRuns: 100 },
  );
});

test('a set finds names although all of them hash to the same place', () => {
  const set = createNameSet();
  const key = randomBytes(16);
  const sip = createSipHash(key);
  sip.hash(Buffer.from('ada'), 0, 3);
  const [first, second, third] = wordsOf(sip);
  for (let i = 1; i <= 40; i++) set.add([first, second, third + i], 0);
  assert.ok(!set.has(sip, 1), 'two words are not enough');
  set.add([first, second, third], 0);
  for (let i = 1; i <= 40; i++) set.remove([first, second, third + i], 0);
  sip.hash(Buffer.from('ada'), 0, 3);
  assert.ok(set.has(sip, 1));
  assert.equal(set.size(), 1);
  // Neither the place nor the bitmap tells these from the name.
  for (const [one, other] of [
    [first ^ 1, second],
    [first, second ^ (1 << 20)],
  ] as const)
    assert.ok(!set.has({ ...sip, first: () => one, second: () => other, third: () => third }, 1));
});

test('a million names take at most 32 MB, and none of them is missed', () => {
  const set = createNameSet();
  const hasher = createNameHasher('secret', '1');
  for (let i = 0; i < 1_000_000; i++) set.add(wordsOf(hasher.ofUserId(String(i))), 0);
  assert.equal(set.size(), 1_000_000);
  assert.ok(set.bytes() <= 32_000_000, `${set.bytes()} bytes`);
  for (let i = 0; i < 1_000_000; i += 101) assert.ok(set.has(hasher.ofUserId(String(i)), 1));
  for (let i = 1_000_000; i < 1_010_000; i++) assert.ok(!set.has(hasher.ofUserId(String(i)), 1));
});

test('hashes of names differ by account, kind and environment, and are read back as they were written', () => {
  const [one, other] = [createNameHasher('secret', '1'), createNameHasher('secret', '2')];
  const names = [
    one.textOf({ identity: '7' }),
    one.textOf({ userId: '7' }),
    other.textOf({ identity: '7' }),
    createNameHasher('another secret', '1').textOf({ identity: '7' }),
    inEnvironment(one.textOf({ identity: '7' }), '1000000001'),
  ];
  assert.equal(new Set(names).size, names.length);
  const bytes = Buffer.from('xΔ€7x');
  assert.equal(textOfHash(one.ofIdentityBytes(bytes, 1, 6)), one.textOf({ identity: 'Δ€' }));
  assert.equal(textOfHash(one.ofUserIdBytes(bytes, 6, 7)), one.textOf({ userId: '7' }));
  const text = one.textOf({ identity: '7' });
  assert.deepEqual(readName(text), { hash: wordsOf(one.ofIdentity('7')), appId: undefined });
  assert.equal(readName(inEnvironment(text, '42')).appId, '42');
});
