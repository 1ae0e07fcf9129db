// Local times of imports, in zones that change their offsets.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readTime, readTimeFormat, type TimeFormat } from '../../src/import/times.js';
import { readZone } from '../../src/import/zones.js';
import { isoOf } from '../../src/ingest/timestamp.js';
import fc from '../support/fast-check.js';

function instant(zone: string, local: string, format?: string): string | number {
  const read = readTimeFormat(format, readZone(zone)) as TimeFormat;
  const time = readTime(local, read);
  return typeof time === 'number' ? new Date(time).toISOString() : time;
}

test('a local time is read by the offset that its zone had then', () => {
  const times = [
    ['UTC', '2026-07-01T12:00:00', '2026-07-01T12:00:00.000Z'],
    ['z', '2026-07-01 12:00:00', '2026-07-01T12:00:00.000Z'],
    ['+05:30', '2026-07-01T12:00:00', '2026-07-01T06:30:00.000Z'],
    ['-0330', '2026-07-01T12:00:00', '2026-07-01T15:30:00.000Z'],
    ['Europe/Berlin', '2026-01-01T12:00:00.250', '2026-01-01T11:00:00.250Z'],
    ['Europe/Berlin', '2026-07-01T12:00:00', '2026-07-01T10:00:00.000Z'],
    ['America/New_York', '2026-07-01', '2026-07-01T04:00:00.000Z'],
    ['Australia/Lord_Howe', '2026-01-01T12:00:00', '2026-01-01T01:00:00.000Z'],
    ['Asia/Kathmandu', '1986-01-02T00:00:00', '1986-01-01T18:15:00.000Z'],
    ['Etc/UTC', '2026-07-01T12:00:00', '2026-07-01T12:00:00.000Z'],
  ];
  for (const [zone = '', local = '', expected] of times)
    assert.equal(instant(zone, local), expected, `${zone} ${local}`);
  assert.equal(instant('Europe/Berlin', '01.07.2026 12:00', 'DD.MM.YYYY HH:mm'), '2026-07-01T10:00:00.000Z');
});

test('of a local time that occurs twice the first counts, and a skipped one moves forward by the change', () => {
  assert.equal(instant('Europe/Berlin', '2026-10-25T02:30:00'), '2026-10-25T00:30:00.000Z');
  assert.equal(instant('Europe/Berlin', '2026-10-25T03:00:00'), '2026-10-25T02:00:00.000Z');
  assert.equal(instant('Europe/Berlin', '2026-03-29T02:30:00'), '2026-03-29T01:30:00.000Z');
  assert.equal(instant('Europe/Berlin', '2026-03-29T01:59:59'), '2026-03-29T00:59:59.000Z');
});

test('a time that names its zone is not moved', () => {
  assert.equal(instant('Europe/Berlin', '2026-07-01T12:00:00+05:00'), '2026-07-01T07:00:00.000Z');
  assert.equal(
    instant('Europe/Berlin', '2026-07-01 12:00 -02:00', 'YYYY-MM-DD HH:mm Z'),
    '2026-07-01T14:00:00.000Z',
  );
});

test('an unknown zone is refused', () => {
  for (const text of ['', 'Berlin', 'CET', '+2', '+02:75', 'Europe/Nowhere', '02:00'])
    assert.equal(readZone(text), undefined, text);
});

test('the text of an instant is that of Date.toISOString', () => {
  fc.assert(
    fc.property(fc.maxSafeInteger(), fc.integer({ min: 0, max: 100_000_000 }), (far, near) => {
      const any = far % 8_640_000_000_000_000;
      for (const ms of [any, any + near, near, -near])
        if (Math.abs(ms) <= 8.64e15) assert.equal(isoOf(ms), new Date(ms).toISOString());
    }),
    { numRuns: 2_000 },
  );
});
