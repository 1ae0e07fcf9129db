// Fingerprints of records, which show whether a repeat differs from the first record with its key.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fingerprintOfRow } from '../../src/ingest/fingerprint.js';
import fc from '../support/fast-check.js';

/** The fingerprint of a row that stands at this place in a commit. */
function fingerprintOf(row: string, number = 0, before = 0): number {
  const bytes = Buffer.concat([
    Buffer.alloc(before, 0x2c),
    Buffer.from(`${row}${number}\n`),
    Buffer.alloc(9),
  ]);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return fingerprintOfRow(view, before, bytes.length - 9, 6);
}

const rowOf = (event: string, properties: object = {}, time: string | null = null) =>
  `${JSON.stringify(['1', 'id', event, null, 'ada', '', time, properties]).slice(0, -1)},`;

test('the fingerprint of a row is the same wherever the row stands in a commit, and never 0', () => {
  fc.assert(
    fc.property(fc.string(), fc.nat(9_999), fc.nat(9), (event, number, before) => {
      const row = rowOf(event);
      const fingerprint = fingerprintOf(row);
      assert.ok(fingerprint >= 1 && fingerprint <= 255);
      assert.equal(fingerprintOf(row, number, before), fingerprint);
    }),
  );
});

test('rows that differ anywhere have different fingerprints, except one in 255', () => {
  const row = rowOf('Order Completed', { amount: '12.5', currency: 'EUR' });
  const fingerprint = fingerprintOf(row);
  let same = 0;
  let tried = 0;
  const time = row.lastIndexOf('null');
  for (let at = 0; at < row.length; at += 1) {
    // Skips the ends of columns, and the time.
    if (',"'.includes(row[at] as string) || (at >= time && at < time + 4)) continue;
    for (let code = 0x30; code < 0x7b; code += 1) {
      const other = row.slice(0, at) + String.fromCharCode(code) + row.slice(at + 1);
      if (other === row || code === 0x5c) continue;
      tried += 1;
      if (fingerprintOf(other) === fingerprint) same += 1;
    }
  }
  assert.ok(tried > 3_000 && same / tried < 2 / 255, `${same} of ${tried}`);
  const swapped = rowOf('Order Completed', { currency: 'EUR', amount: '12.5' });
  assert.notEqual(fingerprintOf(swapped), fingerprint);
});

test('the fingerprint of a row does not depend on its time, given or not, even if the same text is elsewhere in it', () => {
  const [one, two] = ['2026-03-01 12:30:00.250', '2026-03-01 12:30:07.001'];
  const of = (time: string | null, event = 'Opened', properties = {}) =>
    fingerprintOf(rowOf(event, properties, time));
  assert.equal(of(one), of(two));
  assert.equal(of(one), of(null));
  const quoted = `\\",null,"${one}",`;
  assert.equal(of(one, quoted, { a: quoted }), of(two, quoted, { a: quoted }));
  assert.notEqual(of(one, 'Opened', { at: one }), of(one, 'Opened', { at: two }));
  assert.notEqual(of(one, 'Opened'), of(one, 'Closed'));
});
