// Events that are sent unchecked are those that mending leaves alone and checks accept: both ways give the same text, key and mendings.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lengths, timestampAheadMsMax } from '../../src/contract/limits.js';
import { createMapper } from '../../src/import/mapping.js';
import { type ImportOptions, readOptions } from '../../src/import/options.js';
import type { Row } from '../../src/import/row.js';
import fc, { runs } from '../support/fast-check.js';

const optionsOf = (args: readonly string[]) =>
  readOptions(['x', '--app-id', '1', ...args], {}) as ImportOptions;

/** The results of both ways for the same rows: records or faults, and the counts. */
function bothWays(args: readonly string[], rows: readonly Row[]) {
  return [true, false].map((isQuick) => {
    const mapper = createMapper(optionsOf(args), 'h', isQuick);
    const mapped = rows.map((row) => mapper.map(row));
    return { mapped, mendings: mapper.mendings, commas: mapper.commas, words: mapper.sharedWords };
  });
}

function assertAlike(args: readonly string[], rows: readonly Row[]): void {
  const [quick, full] = bothWays(args, rows);
  assert.deepEqual(quick, full);
}

const none: ReadonlySet<string> = new Set();
const rowOf = (value: Record<string, unknown>, place = 1, surrogates = false): Row => ({
  place,
  value,
  surrogates,
  longNumerals: none,
});

const base = ['--identity', 'who', '--timestamp', 'when', '--time-zone', 'UTC'];
const mappings = [
  [...base, '--event', 'Flight'],
  [...base, '--event', 'Flight', '--strict'],
  [...base, '--event', 'a "quoted" name'],
  [...base, '--event-column', 'what', '--key', 'key', '--session-id', 'session'],
  [...base, '--event', 'E', '--properties', 'a,b=c,what,a.b=d,session=1'],
  [...base, '--event', 'E', '--decimal-comma', 'a'],
  [...base, '--event', 'E', '--user-id', 'a'],
  ['--identity', 'who', '--event', 'E'],
  ['--anonymous-id', 'who', '--event', 'E'],
];

test('every row becomes the same record, or gets the same fault, as without the quick way', () => {
  const edges = [
    ...[
      '',
      ' ',
      'x',
      'a b',
      'ü',
      '"',
      '\\',
      '\n',
      '\x7f',
      'a\0b',
      '😀',
      '漢'.repeat(lengths.propertyValueMax),
      '\u2028',
      '\ud800',
      '801,40',
      '1.234',
      '1,000',
      'a,b',
      'null',
      '0x10',
    ],
    ...[
      0,
      -0,
      1,
      -1.5,
      1e21,
      1e-7,
      2 ** 53,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      true,
      false,
      null,
      undefined,
    ],
    ...[10n, [], ['a', 1], {}, { b: 'x' }, new Date(0), new Date(Number.NaN), new Date(1e12)],
    ...[254, 255, 256, 1023, 1024].map((length) => 'x'.repeat(length)),
  ];
  const times = [
    ...[
      '2024-01-01',
      '2024-01-01 10:00:00',
      '2024-02-30',
      '2024-01-01T10:00:00.123456Z',
      '1969-12-31',
      '9999-12-31',
      1.7e12,
      1.7e9,
    ],
    ...[
      new Date(1.7e12),
      new Date(-1),
      new Date(Date.now() + timestampAheadMsMax + 60_000),
      new Date(Number.NaN),
    ],
  ];
  const any = fc.oneof(fc.constantFrom<unknown>(...edges), fc.string(), fc.double(), fc.integer());
  const name = fc.oneof(
    fc.constantFrom(
      'a',
      'b',
      'what',
      'user_id',
      'session_id',
      'screen_name',
      '1',
      '',
      'constructor',
      '__proto__',
      'a"',
      '_sluice_key',
      '_sluice_row',
    ),
    fc.string(),
    fc.constant('k'.repeat(lengths.propertyKeyMax + 1)),
  );
  const fields = fc.record(
    {
      who: fc.oneof({ weight: 3, arbitrary: fc.constantFrom<unknown>('ada', 7, 'x@example.com') }, any),
      when: fc.oneof({ weight: 3, arbitrary: fc.constantFrom<unknown>(...times) }, any),
      what: fc.oneof({ weight: 3, arbitrary: fc.constant<unknown>('Signed up') }, any),
      key: fc.oneof({ weight: 3, arbitrary: fc.constant<unknown>('k1') }, any),
      session: any,
      a: any,
      b: any,
    },
    { requiredKeys: [] },
  );
  const row = fc
    .tuple(fields, fc.dictionary(name, any, { maxKeys: 4 }), fc.nat(1e6), fc.boolean())
    .map(([own, others, place, surrogates]) => rowOf({ ...others, ...own }, place, surrogates));
  fc.assert(fc.property(fc.constantFrom(...mappings), fc.array(row, { maxLength: 4 }), assertAlike), {
    numRuns: runs(3_000),
  });
});

test('rows with as many properties as allowed, and one more, are alike', () => {
  for (const count of [999, 1000, 1001]) {
    const value = Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, i]));
    assertAlike(['--identity', 'who', '--event', 'E'], [rowOf({ who: 'ada', ...value })]);
    const columns = Object.keys(value).join(',');
    assertAlike(
      ['--identity', 'who', '--event', 'E', '--properties', columns],
      [rowOf({ who: 'ada', ...value })],
    );
  }
});
