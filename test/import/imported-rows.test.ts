// How a file's rows are read before they are sent, and which records they become.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { crc32, deflateRawSync, gzipSync } from 'node:zlib';
import { userIdOfAnonymousId } from '../../src/contract/user-id.js';
import { type FileOptions, type Input, openInputs } from '../../src/import/inputs.js';
import { splitValues } from '../../src/import/json-elements.js';
import { createMapper, type Mapper } from '../../src/import/mapping.js';
import { type ImportOptions, readOptions } from '../../src/import/options.js';
import type { ReadOptions, Row } from '../../src/import/row.js';
import { readRows } from '../../src/import/rows.js';
import type { Outgoing } from '../../src/import/sender.js';
import { readTime, readTimeFormat, type TimeFormat } from '../../src/import/times.js';
import { utc } from '../../src/import/zones.js';
import { isLongerThan } from '../../src/parsing/code-points.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { parquetOf } from '../support/parquet-file.js';

let folder: string;
before(() => {
  folder = tempDir('import-rows');
});
after(() => removeTempDir(folder));

async function open(name: string, content: string | Uint8Array, stated: FileOptions = {}): Promise<Input> {
  const path = join(folder, name);
  writeFileSync(path, content);
  return (await openInputs([path], stated))[0] as Input;
}

async function chunksOf(
  input: Input,
  after = 0,
  { columns, takesRest }: Pick<Mapper, 'columns' | 'takesRest'> = { columns: [], takesRest: true },
  csv: Pick<ReadOptions, 'isMysql' | 'nullText'> = {},
): Promise<Row[][]> {
  const options = {
    ...csv,
    after,
    columns,
    takesRest,
    timeColumn: undefined,
    zone: undefined,
    onShare: () => undefined,
  };
  const chunks: Row[][] = [];
  for await (const rows of readRows(input, options)) chunks.push(rows);
  return chunks;
}

function mapperOf(...args: readonly string[]): Mapper {
  return createMapper(readOptions(['x', '--app-id', '1', ...args], {}) as ImportOptions, 'h');
}

type Sent = { readonly [field: string]: unknown };

/** The record of each row, or its fault. */
async function mapped(input: Input, ...args: readonly string[]): Promise<(Sent | string)[]> {
  const mapper = mapperOf(...args);
  const { csvDialect, nullText } = readOptions(['x', '--app-id', '1', ...args], {}) as ImportOptions;
  const csv = { isMysql: csvDialect === 'mysql', nullText };
  return (await chunksOf(input, 0, mapper, csv)).flat().flatMap((row): (Sent | string)[] => {
    const result = mapper.map(row);
    return 'fault' in result ? [result.fault] : result.map(({ json }) => JSON.parse(json) as Sent);
  });
}

const ndjson = (name: string, ...rows: readonly (string | object)[]) =>
  open(name, rows.map((row) => (typeof row === 'string' ? row : JSON.stringify(row))).join('\n'));

describe('a number with more digits than a double holds', () => {
  const [one, other] = ['1234567890123456789', '1234567890123456790'];

  test('names one user and one row, as a text of its digits', async () => {
    const input = await ndjson('long.ndjson', `{"u": ${one}}`, `{"u": ${other}}`);
    const by = (...args: readonly string[]) => mapped(input, '--event', 'x', ...args);
    const field = (records: readonly (Sent | string)[], name: string) =>
      records.map((record) => (record as Sent)[name]);
    assert.deepEqual(field(await by('--identity', 'u'), 'identity'), [one, other]);
    assert.deepEqual(
      field(await by('--anonymous-id', 'u'), 'user_id'),
      [one, other].map(userIdOfAnonymousId),
    );
    assert.deepEqual(field(await by('--identity', 'u', '--key', 'u'), 'idempotency_key'), [one, other]);
    assert.deepEqual(field(await by('--identity', 'u', '--session-id', 'u'), 'session_id'), [one, other]);
  });

  test('stays what it is as a property, in a column or below one of a preset', async () => {
    const lat = '52.520006599999998714';
    const columns = await ndjson('lat.ndjson', `{"u": "ada", "lat": ${lat}, "in": {"list": [${one}]}}`);
    const [event] = await mapped(columns, '--event', 'x', '--identity', 'u');
    assert.deepEqual((event as Sent).properties, { lat, 'in.list': [one] });
    const amplitude = await ndjson(
      'lat-amplitude.ndjson',
      `{"event_type": "x", "user_id": "ada", "event_time": "2026-05-05", "event_properties": {"lat": ${lat}}, "user_properties": {"n": ${one}}}`,
    );
    const [first, identify] = (await mapped(amplitude, '--preset', 'amplitude')) as Sent[];
    assert.deepEqual([first?.properties, identify?.traits], [{ lat }, { n: one }]);
  });

  test('is refused as a user if its digits are lost already', async () => {
    const input = await ndjson('lost.ndjson', '{"u": 1e300}', '{"u": 1.5}');
    for (const args of [
      ['--identity', 'u'],
      ['--user-id', 'u'],
      ['--identity', 'u', '--strict'],
    ])
      for (const record of await mapped(input, '--event', 'x', ...args))
        assert.equal(typeof record, 'string');
  });
});

describe('a key', () => {
  const without = [{ $oid: 'a' }, ['a'], true, 1.5, 1e300];
  const fault = (column: string) => `The row has neither a text nor an integer in the column ${column}.`;

  test('is a text or an integer, and so is a session and an anonymous id', async () => {
    const input = await ndjson('keys.ndjson', { k: 'a' }, { k: 7 }, ...without.map((k) => ({ k })));
    const anonymous = ['--event', 'x', '--anonymous-id'];
    for (const [args, field, names] of [
      [[...anonymous, 'k'], 'user_id', [userIdOfAnonymousId('a'), userIdOfAnonymousId('7')]],
      [['--event-column', 'k', '--identity', 'k', '--key', 'k'], 'idempotency_key', undefined],
    ] as const) {
      const records = await mapped(input, ...args);
      if (names !== undefined)
        assert.deepEqual(
          records.slice(0, 2).map((record) => (record as Sent)[field]),
          names,
        );
      assert.deepEqual(
        records.slice(2),
        without.map(() => fault('k')),
      );
    }
    const sessions = await ndjson('sessions.ndjson', ...without.map((s) => ({ u: 'ada', s })));
    assert.deepEqual(
      await mapped(sessions, '--event', 'x', '--identity', 'u', '--session-id', 's'),
      without.map(() => fault('s')),
    );
  });

  test('of a Parquet date is its time in UTC', () => {
    const at = new Date('2024-01-01T00:00:00.120Z');
    const row = { place: 1, value: { u: 'ada', k: at }, surrogates: false, longNumerals: new Set<string>() };
    const result = mapperOf('--event', 'x', '--identity', 'u', '--key', 'k').map(row);
    assert.ok(!('fault' in result));
    assert.match(result[0]?.json ?? '', /"idempotency_key":"2024-01-01T00:00:00\.120Z"/);
  });

  test('of a preset is a hash if the id of the export leaves no room for the rest of it', async () => {
    const ids = ['😀'.repeat(240), 'b'.repeat(240), 'b'.repeat(250)];
    const input = await ndjson(
      'long-keys.ndjson',
      ...ids.map((uuid) => ({
        event_time: '2023-05-05 00:00:00',
        event_type: 'x',
        user_id: uuid,
        device_id: 'tv',
        uuid,
      })),
    );
    const keys = (await mapped(input, '--preset', 'amplitude')).map(
      (one) => (one as Sent).idempotency_key ?? (one as Sent).messageId ?? one,
    );
    assert.equal(keys[0], `amplitude:${ids[0]}`);
    assert.equal(new Set(keys).size, 6);
    assert.ok(
      keys.every((key) => !isLongerThan(String(key), 255) && !String(key).includes(' ')),
      String(keys),
    );
    assert.deepEqual(
      (await mapped(input, '--preset', 'amplitude')).map(
        (one) => (one as Sent).idempotency_key ?? (one as Sent).messageId,
      ),
      keys,
    );
  });

  test('of a preset comes from the place of the row if the export has none', async () => {
    const time = '2024-05-05T10:00:00Z';
    const exports = [
      ['heap', { event: 'x', identity: 'ada', time }, 'event_id', 'heap:'],
      ['amplitude', { event_type: 'x', user_id: 'ada', event_time: time }, 'uuid', 'amplitude:'],
      ['mixpanel', { event: 'x', properties: { distinct_id: 'ada', time: 1 } }, '$insert_id', 'mixpanel:'],
      ['segment', { type: 'track', event: 'x', userId: 'ada', timestamp: time }, 'messageId', ''],
    ] as const;
    for (const [preset, row, column, prefix] of exports) {
      const holding = (value: unknown) =>
        preset === 'mixpanel'
          ? { ...row, properties: { ...row.properties, [column]: value } }
          : { ...row, [column]: value };
      const input = await ndjson(`${preset}.ndjson`, ...['', null, 'a', { $oid: 'a' }].map(holding));
      const records = await mapped(input, '--preset', preset);
      const events = records.filter((record) => typeof record === 'string' || record.type !== 'identify');
      const keys = events.map((record) =>
        typeof record === 'string' ? 'fault' : String(record.idempotency_key ?? record.messageId),
      );
      assert.match(keys.slice(0, 2).join(' '), /^import:\S+:1 import:\S+:2$/, preset);
      assert.ok(keys[2]?.startsWith(`${prefix}a`), preset);
      assert.equal(keys[3], 'fault', preset);
    }
  });

  test('of Mixpanel without a device names nobody, since all such rows would be one user', async () => {
    const input = await ndjson(
      'devices.ndjson',
      { event: 'x', properties: { time: 1, distinct_id: '$device:' } },
      { event: 'x', properties: { time: 1, distinct_id: '$device:tv', $user_id: null } },
    );
    const [nobody, device] = await mapped(input, '--preset', 'mixpanel');
    assert.match(String(nobody), /Exactly one of identity and user_id/);
    assert.equal((device as Sent).user_id, userIdOfAnonymousId('tv'));
  });

  test('of Mixpanel merges a device into the user of the first event with both, once', async () => {
    const of = (more: object) => ({ event: 'x', properties: { time: 1_683_244_800, ...more } });
    const input = await ndjson(
      'merged.ndjson',
      of({ distinct_id: '$device:tv', $insert_id: 'a' }),
      of({ distinct_id: 'ada', $user_id: 'ada', $device_id: 'tv', $insert_id: 'b' }),
      of({ distinct_id: 'ada', $user_id: 'ada', $device_id: 'tv', $insert_id: 'c' }),
      of({ distinct_id: 'ada', $user_id: 'ada', $insert_id: 'd' }),
      of({ distinct_id: 'bob', $insert_id: 'e' }),
      of({ distinct_id: 'eve', $user_id: 'eve', $device_id: { a: 1 }, $insert_id: 'f' }),
    );
    const sent = (await mapped(input, '--preset', 'mixpanel')) as Sent[];
    assert.equal(sent.filter(({ event }) => event === 'x').length, 6);
    const merges = sent.filter(({ type }) => type === 'identify');
    assert.deepEqual(
      merges.map((one) => [one.userId, one.anonymousId, one.traits, one.timestamp]),
      [['ada', 'tv', {}, '2023-05-05T00:00:00.000Z']],
    );
    assert.equal(merges[0]?.messageId, `${sent[1]?.idempotency_key}:user`);
  });

  test('of a word instead of a user has each of its events, and merges no device into it', async () => {
    const time = { event_time: '2023-05-05 00:00:00', properties: { time: 1_683_244_800 } };
    const cases: readonly (readonly [preset: string, row: (insert: string) => object])[] = [
      [
        'mixpanel',
        ($insert_id) => ({
          event: 'x',
          properties: { ...time.properties, $user_id: 'null', $device_id: 'tv', $insert_id },
        }),
      ],
      ['amplitude', (uuid) => ({ ...time, event_type: 'x', user_id: 'undefined', device_id: 'tv', uuid })],
    ];
    for (const [preset, row] of cases) {
      const input = await ndjson(`${preset}-words.ndjson`, row('a'), row('b'));
      const sent = await mapped(input, '--preset', preset);
      assert.deepEqual(
        sent.map((one) => (one as Sent).event),
        ['x', 'x'],
        String(sent),
      );
    }
  });

  test('of a word that the environment allows is one of a user, whose devices are merged', async () => {
    const row = { event_time: '2023-05-05 00:00:00', event_type: 'x', device_id: 'tv', uuid: 'a' };
    const input = await ndjson(
      'allowed.ndjson',
      { ...row, user_id: 'guest' },
      { ...row, user_id: 'nil', uuid: 'b' },
    );
    const mapper = mapperOf('--preset', 'amplitude', '--allow-identities', 'guest,id');
    const sent = (await chunksOf(input)).flat().flatMap((one) => mapper.map(one) as readonly Outgoing[]);
    assert.deepEqual(
      sent.map(({ json }) => [JSON.parse(json).identity, JSON.parse(json).userId]),
      [
        ['guest', undefined],
        [undefined, 'guest'],
        ['nil', undefined],
      ],
    );
    assert.deepEqual([...mapper.sharedWords], [['nil', 1]]);
    const message = {
      type: 'identify',
      userId: 'guest',
      anonymousId: 'tv',
      timestamp: '2023-05-05T00:00:00Z',
    };
    const archive = await ndjson('allowed-segment.ndjson', message);
    assert.match(String(await mapped(archive, '--preset', 'segment')), /a word that many users would share/);
    const [merged] = await mapped(archive, '--preset', 'segment', '--allow-identities', 'guest');
    assert.equal((merged as Sent).userId, 'guest');
  });
});

describe('a time', () => {
  const seconds = ['--event', 'x', '--identity', 'u', '--timestamp', 't', '--timestamp-format', 's'];
  const timesOf = async (input: Input, ...args: readonly string[]) =>
    (await mapped(input, ...args)).map((record) => (typeof record === 'string' ? record : record.timestamp));

  test('in seconds is a number in plain decimals, and nothing else that JavaScript takes for one', async () => {
    const faultless = ['1700000000', ' 1700000000 ', '1136214245.998', '1.001', '+1.', '0'];
    const others = ['0x10', '1e3', '0b1', 'Infinity', '.', '1 2', '1,5'];
    const blanks = ['', ' ', '\t'];
    const cells = [...faultless, ...blanks, ...others];
    const csv = await open('seconds.csv', `u\tt\n${cells.map((cell) => `ada\t"${cell}"\n`).join('')}`);
    const fault =
      'The row has a time in the column t that is not a plain number, as --timestamp-format requires.';
    assert.deepEqual(await timesOf(csv, ...seconds), [
      '2023-11-14T22:13:20.000Z',
      '2023-11-14T22:13:20.000Z',
      '2006-01-02T15:04:05.998Z',
      '1970-01-01T00:00:01.001Z',
      '1970-01-01T00:00:01.000Z',
      '1970-01-01T00:00:00.000Z',
      // Without a time the row would get the time of the import, so it is refused.
      ...blanks.map(() => 'The row has no time in the column t.'),
      ...others.map(() => fault),
    ]);
    const values = [1.001, 1e3, 1e-7, null, [], [5], ['1700000000'], {}, true, false];
    const json = await ndjson('seconds.ndjson', ...values.map((t) => ({ u: 'ada', t })));
    assert.deepEqual(await timesOf(json, ...seconds), [
      '1970-01-01T00:00:01.001Z',
      '1970-01-01T00:16:40.000Z',
      '1970-01-01T00:00:00.000Z',
      'The row has no time in the column t.',
      ...values.slice(4).map(() => fault),
    ]);
  });

  test('in other units keeps its milliseconds, however many digits follow', async () => {
    const late = '1700000000123999999';
    const input = await ndjson('ns.ndjson', `{"u": "ada", "t": ${late}}`, `{"u": "ada", "t": "${late}"}`);
    const expected = ['2023-11-14T22:13:20.123Z', '2023-11-14T22:13:20.123Z'];
    assert.deepEqual(await timesOf(input, ...seconds, '--timestamp-format', 'ns'), expected);
    const instantOf = (text: string, unit: string) =>
      readTime(text, readTimeFormat(unit, undefined) as TimeFormat);
    assert.deepEqual(
      [instantOf('-1', 'ns'), instantOf('-1000000', 'ns'), instantOf('-0.5', 's')],
      [-1, -1, -500],
    );
    const long = await ndjson('digits.ndjson', { u: 'ada', t: '9'.repeat(100_000) });
    const [fault] = await timesOf(long, ...seconds);
    assert.match(String(fault), /is farther away than any date/);
  });

  test('without a format is not read from a list that contains one', async () => {
    const input = await ndjson(
      'lists.ndjson',
      { u: 'ada', t: [1700000000000] },
      { u: 'ada', t: ' 1700000000000 ' },
    );
    const [list, text] = await timesOf(input, ...seconds.slice(0, -2));
    assert.equal(list, 'The row has a time in the column t that is not a time.');
    assert.equal(text, '2023-11-14T22:13:20.000Z');
  });
});

test('a number that may be a date or milliseconds is refused until the options say which', async () => {
  const auto = readTimeFormat(undefined, undefined) as TimeFormat;
  const words =
    'is either a date or milliseconds of 1976; add --timestamp-format YYYYMMDDHHmm with a --time-zone, or --timestamp-format ms';
  for (const date of ['199001010000', ' 202402291200 ', '202401011200.0', '210012312359'])
    assert.equal(readTime(date, auto), words, date);
  assert.equal(readTime(202401011200, auto), words);
  assert.equal(readTime(202401011200n, auto), words);
  const others = [
    '198912312359',
    '202302291200',
    '202401012400',
    '202401011260',
    '210101010000',
    '999999999999',
  ];
  for (const ms of others) assert.equal(readTime(ms, auto), Number(ms), ms);
  assert.equal(readTime('202401011200', readTimeFormat('ms', undefined) as TimeFormat), 202401011200);
  const pattern = readTimeFormat('YYYYMMDDHHmm', utc) as TimeFormat;
  for (const date of ['202401011200', 202401011200, 202401011200n])
    assert.equal(readTime(date, pattern), Date.UTC(2024, 0, 1, 12));
});

test('blanks alone name nobody and no row, and are kept as properties', async () => {
  const rows = [
    { u: ' ', k: 'a', p: ' ' },
    { u: 'ada', k: '\t', p: ' ' },
    { u: '', d: '\u00a0', k: 'c' },
  ];
  const input = await ndjson('blanks.ndjson', ...rows, { u: ' ', d: 'tv', k: 'd', p: ' ' });
  const named = ['--event', 'x', '--identity', 'u', '--anonymous-id', 'd', '--key', 'k'];
  const [first, second, third, fourth] = await mapped(input, ...named);
  for (const nobody of [first, third]) assert.match(String(nobody), /Exactly one of identity and user_id/);
  assert.equal(second, 'The row has nothing in the column k, which holds the keys.');
  assert.deepEqual((fourth as Sent).properties, { p: ' ' });
  assert.equal((fourth as Sent).user_id, userIdOfAnonymousId('tv'));
  const heap = await ndjson('blanks-heap.ndjson', {
    event: '',
    event_table_name: 'views',
    identity: ' ',
    user_id: 7,
    time: '2024-05-05',
  });
  const [view] = await mapped(heap, '--preset', 'heap');
  assert.deepEqual([(view as Sent).event, (view as Sent).user_id], ['views', '7']);
});

test('a time may be written as people and databases write it', async () => {
  const zone = ['--time-zone', 'UTC'];
  const times = async (cells: readonly string[], ...args: readonly string[]) => {
    const file = await open('times.csv', `u;t\n${cells.map((cell) => `ada;${cell}\n`).join('')}`);
    const columns = ['--event', 'x', '--identity', 'u', '--timestamp', 't'];
    return (await mapped(file, ...columns, ...args)).map((one) =>
      typeof one === 'string' ? one : one.timestamp,
    );
  };
  assert.deepEqual(await times(['2024-05-05 10:00:00 UTC', '2024-05-05 10:00:00.123456 UTC']), [
    '2024-05-05T10:00:00.000Z',
    '2024-05-05T10:00:00.123Z',
  ]);
  const us = ['--timestamp-format', 'M/D/YYYY h:mm A', ...zone];
  const fault = /does not have the form|is not a real date|has no hour/;
  const read = await times(
    [
      '5/9/2024 3:05 PM',
      '12/31/2024 12:00 am',
      '5/9/2024 12:30 p.m.',
      '13/9/2024 3:05 PM',
      '5/9/2024 0:05 PM',
    ],
    ...us,
  );
  assert.deepEqual(read.slice(0, 3), [
    '2024-05-09T15:05:00.000Z',
    '2024-12-31T00:00:00.000Z',
    '2024-05-09T12:30:00.000Z',
  ]);
  for (const one of read.slice(3)) assert.match(String(one), fault);
  const [unsaid] = await times(['5/9/2024 3:05 PM'], ...zone);
  assert.match(String(unsaid), /another form is named by --timestamp-format, such as M\/D\/YYYY h:mm A/);
  for (const wrong of ['M/D/YYYY h:mm', 'M/D/YYYY HH A', 'M/D/YYYY MM'])
    assert.equal(typeof readTimeFormat(wrong, undefined), 'string', wrong);
});

describe('an export of another system', () => {
  const time = '2024-05-05T10:00:00Z';
  const keysOf = (records: readonly (Sent | string)[]) =>
    records.map((record) =>
      typeof record === 'string' ? record : (record.idempotency_key ?? record.messageId),
    );

  test('has the keys by which its maker distinguishes rows', async () => {
    const heap = { event_table_name: 'click', user_id: 1, event_id: 9, time };
    const mixpanel = { event: 'a', properties: { distinct_id: 'ada', time: 1, $insert_id: 'i' } };
    const apart: readonly (readonly [preset: string, rows: readonly object[]])[] = [
      [
        'heap',
        [
          heap,
          { ...heap, event_table_name: 'click_home' },
          { ...heap, user_id: 2 },
          { ...heap, event_id: 8 },
        ],
      ],
      [
        'mixpanel',
        [
          mixpanel,
          { ...mixpanel, event: 'b' },
          ...[{ distinct_id: 'bob' }, { time: 2 }, { $insert_id: 'j' }].map((other) => ({
            ...mixpanel,
            properties: { ...mixpanel.properties, ...other },
          })),
        ],
      ],
    ];
    for (const [preset, rows] of apart) {
      const once = keysOf(await mapped(await ndjson('once.ndjson', ...rows), '--preset', preset));
      assert.equal(new Set(once).size, rows.length, preset);
      const more = rows.map((row) => ({ ...row, more: 1 }));
      assert.deepEqual(
        keysOf(await mapped(await ndjson('more.ndjson', ...more), '--preset', preset)),
        once,
        preset,
      );
    }
  });

  test('has no row without a time', async () => {
    const rows: readonly (readonly [preset: string, row: object])[] = [
      ['heap', { event: 'x', identity: 'ada' }],
      ['amplitude', { event_type: 'x', user_id: 'ada' }],
      ['mixpanel', { event: 'x', properties: { distinct_id: 'ada' } }],
      ['segment', { type: 'track', event: 'x', userId: 'ada' }],
    ];
    for (const [preset, row] of rows) {
      const [fault] = await mapped(await ndjson('timeless.ndjson', row), '--preset', preset);
      assert.match(String(fault), /^The row has no time/, preset);
    }
  });

  test('of Mixpanel has seconds or milliseconds, of the project’s clock if the options say so', async () => {
    const rows = [1_683_244_800, 1_683_244_800_500, '1683244800'].map((time) => ({
      event: 'x',
      properties: { distinct_id: 'ada', time },
    }));
    const times = async (...args: readonly string[]) =>
      (await mapped(await ndjson('clock.ndjson', ...rows), '--preset', 'mixpanel', ...args)).map(
        (one) => (one as Sent).timestamp,
      );
    assert.deepEqual(await times(), [
      '2023-05-05T00:00:00.000Z',
      '2023-05-05T00:00:00.500Z',
      '2023-05-05T00:00:00.000Z',
    ]);
    assert.deepEqual(await times('--time-zone', 'America/Los_Angeles'), [
      '2023-05-05T07:00:00.000Z',
      '2023-05-05T07:00:00.500Z',
      '2023-05-05T07:00:00.000Z',
    ]);
    for (const preset of ['heap', 'amplitude', 'segment'])
      assert.throws(
        () => mapperOf('--preset', preset, '--time-zone', 'UTC'),
        /--time-zone must not be given/,
      );
  });

  test('of Segment has the time by its clocks, or the time when it was received', async () => {
    const track = { type: 'track', event: 'x', userId: 'ada' };
    const [corrected, received] = await mapped(
      await ndjson(
        'clocks.ndjson',
        {
          ...track,
          originalTimestamp: '2024-05-05T10:00:00Z',
          sentAt: '2024-05-05T10:00:10Z',
          receivedAt: '2024-05-05T11:00:10Z',
        },
        { ...track, receivedAt: '2024-05-05T11:00:10Z' },
      ),
      ...['--preset', 'segment'],
    );
    assert.deepEqual(
      [(corrected as Sent).timestamp, (received as Sent).timestamp],
      ['2024-05-05T11:00:00.000Z', '2024-05-05T11:00:10Z'],
    );
  });

  test('sends the user properties of its latest event, with the time at which they were true', async () => {
    const row = (hour: string, plan: string) => ({
      event_type: 'x',
      user_id: 'ada',
      event_time: hour,
      uuid: plan,
      user_properties: { plan },
    });
    assert.deepEqual(
      await mapped(
        await ndjson('texts.ndjson', { ...row('2015-05-05 00:10:00', 'b'), user_properties: '{"plan":"b"}' }),
        ...['--preset', 'amplitude'],
      ),
      ['The row has user_properties as a text, not as an object.'],
    );
    const rows = [
      row('2015-05-05 00:10:00', 'b'),
      row('2015-05-05 00:05:00', 'a'),
      row('2015-05-05 00:20:00', 'c'),
    ];
    const sent = (await mapped(await ndjson('plans.ndjson', ...rows), '--preset', 'amplitude')) as Sent[];
    assert.deepEqual(
      sent.filter(({ type }) => type === 'identify').map(({ traits, timestamp }) => [traits, timestamp]),
      [
        [{ plan: 'b' }, '2015-05-05T00:10:00.000Z'],
        [{ plan: 'c' }, '2015-05-05T00:20:00.000Z'],
      ],
    );
  });
});

describe('files', () => {
  const named = async (...words: readonly string[]) =>
    (await openInputs(words.map((word) => join(folder, word)))).map(({ name, format }) => [
      name.slice(folder.length + 1),
      format,
    ]);

  test('are read in the natural order of their names, from folders, patterns and archives', async () => {
    mkdirSync(join(folder, 'hours/more'), { recursive: true });
    for (const hour of [10, 2, 23, 9])
      writeFileSync(join(folder, `hours/h_${hour}#0.json`), `{"h": ${hour}}\n`);
    writeFileSync(join(folder, 'hours/more/h_1.json'), '{"h": 1}\n');
    for (const hidden of ['.DS_Store', '_SUCCESS']) writeFileSync(join(folder, 'hours', hidden), 'x');
    const order = [2, 9, 10, 23].map((hour) => `hours/h_${hour}#0.json`);
    const names = async (...words: readonly string[]) => (await named(...words)).map(([name]) => name);
    for (const pattern of ['hours/h*', 'hours/*.json']) assert.deepEqual(await names(pattern), order);
    // A folder that matches stands for the files below it.
    assert.deepEqual(await names('hours/*'), [...order, 'hours/more/h_1.json']);
    assert.deepEqual(await names('hours/.*'), ['hours/.DS_Store']);
    assert.deepEqual(await names(...order.toReversed()), order);
    assert.deepEqual(await names('hours'), [...order, 'hours/more/h_1.json']);
    // A linked folder is read like any other, but no folder twice.
    mkdirSync(join(folder, 'linked/own'), { recursive: true });
    for (const [to, name] of [
      ['../hours/more', 'other'],
      ['../hours/more', 'same'],
      ['..', 'own/circle'],
    ] as const)
      symlinkSync(to, join(folder, 'linked', name));
    assert.deepEqual(
      (await names('linked')).map((name) => name?.split('/').at(-1)),
      ['h_1.json'],
    );
    const parts = [10, 9].map((hour) => [`a/h_${hour}.json.gz`, gzipSync(`{"z": ${hour}}\n`)] as const);
    writeFileSync(join(folder, 'export.zip'), zipOf([...parts, ['__MACOSX/x', Buffer.from('x')]]));
    assert.deepEqual(await named('export.zip'), [
      ['export.zip/a/h_9.json.gz', 'ndjson'],
      ['export.zip/a/h_10.json.gz', 'ndjson'],
    ]);
    // The same rows have the same keys, whoever unpacked them.
    writeFileSync(join(folder, 'unpacked.json.gz'), parts[1]?.[1] ?? '');
    const [inner, unpacked] = await Promise.all(
      ['export.zip', 'unpacked.json.gz'].map((name) => openInputs([join(folder, name)])),
    );
    assert.equal(inner?.[0]?.hash, unpacked?.[0]?.hash);
    // Beyond ten listeners, Node would warn of a leak.
    const listeners = process.listenerCount('exit');
    await named('export.zip', 'export.zip');
    assert.equal(process.listenerCount('exit'), listeners, 'one listener removes all copies');
    const twice = [1, 2].map((row) => ['a.csv', Buffer.from(`a,b\n${row},2\n`)] as const);
    writeFileSync(join(folder, 'twice.zip'), zipOf(twice));
    await assert.rejects(named('twice.zip'), {
      message: /twice\.zip\/a\.csv: the archive has two files of this name; unpack the one you mean$/,
    });
    const broken = zipOf([['a.csv', Buffer.from('a,b\n1,2\n')]]);
    broken[broken.indexOf('1,2')] = 0x39;
    writeFileSync(join(folder, 'broken.zip'), broken);
    await assert.rejects(named('broken.zip'), /broken\.zip\/a\.csv: it cannot be unpacked: .*checksum/);
  });

  test('that are compressed show their format by what is in them', async () => {
    const contents: readonly (readonly [name: string, text: string, format: string])[] = [
      ['lines.json.gz', '{"a": 1}\n{"a": 2}\n', 'ndjson'],
      ['one.json.gz', '[{"a": 1}]', 'json'],
      ['pretty.json.gz', '{\n"a": 1\n}\n', 'json'],
      ['rows.gz', 'a,b\n1,2\n', 'csv'],
    ];
    for (const [name, text, format] of contents) {
      writeFileSync(join(folder, name), gzipSync(text));
      assert.deepEqual(await named(name), [[name, format]]);
    }
  });

  test('that cannot be read are reported with the kind of content that they have', async () => {
    const workbook = zipOf([['[Content_Types].xml', Buffer.from('<Types/>')]]);
    const contents: readonly (readonly [name: string, content: Buffer, fault: RegExp])[] = [
      [
        'book.xlsx',
        workbook,
        /book\.xlsx: it is an Excel workbook \(\.xlsx\); save it as CSV \(UTF-8\) first/,
      ],
      ['book.csv', workbook, /Excel workbook/],
      [
        'rows.csv.bz2',
        Buffer.from('QlpoOTFBWSZTWQ==', 'base64'),
        /it is compressed by bzip2; unpack it first/,
      ],
      ['rows.parquet.gz', gzipSync('PAR1xx'), /in it is Parquet; unpack it first/],
      ['empty.zip', zipOf([]), /empty\.zip: there is no file in it/],
    ];
    for (const [name, content, fault] of contents) {
      writeFileSync(join(folder, name), content);
      await assert.rejects(named(name), fault);
    }
    mkdirSync(join(folder, 'nothing'));
    await assert.rejects(named('nothing'), /there is no file in this folder/);
    symlinkSync('again', join(folder, 'nothing', 'again'));
    await assert.rejects(named('nothing'), /nothing: its links lead in a circle/);
    // Opening a pipe that nobody writes to would wait for ever.
    execFileSync('mkfifo', [join(folder, 'pipe')]);
    await assert.rejects(named('pipe'), /pipe: it is not a file/);
  });
});

/** A zip archive of these files, deflated. */
function zipOf(files: readonly (readonly [name: string, content: Buffer])[]): Buffer {
  const bodies: Buffer[] = [];
  const entries: Buffer[] = [];
  let at = 0;
  for (const [name, content] of files) {
    const packed = name.endsWith('.csv') ? content : deflateRawSync(content);
    const fields = Buffer.alloc(26);
    fields.writeUInt16LE(20, 0);
    fields.writeUInt16LE(packed === content ? 0 : 8, 4);
    fields.writeUInt32LE(crc32(content), 10);
    fields.writeUInt32LE(packed.length, 14);
    fields.writeUInt32LE(content.length, 18);
    fields.writeUInt16LE(name.length, 22);
    const place = Buffer.alloc(14);
    place.writeUInt32LE(at, 10);
    const body = Buffer.concat([Buffer.from('PK\x03\x04'), fields, Buffer.from(name), packed]);
    entries.push(
      Buffer.concat([Buffer.from('PK\x01\x02'), Buffer.from([20, 0]), fields, place, Buffer.from(name)]),
    );
    bodies.push(body);
    at += body.length;
  }
  const list = Buffer.concat(entries);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(files.length, 4);
  end.writeUInt16LE(files.length, 6);
  end.writeUInt32LE(list.length, 8);
  end.writeUInt32LE(at, 12);
  return Buffer.concat([...bodies, list, Buffer.from('PK\x05\x06'), end]);
}

describe('the key of a refused row', () => {
  test('is a text or an integer, as in the file of rejects', async () => {
    const input = await ndjson(
      'own.ndjson',
      ...['k', 7, '', { a: 1 }].map((key) => ({ u: 'ada', _sluice_key: key })),
    );
    const records = await mapped(input, '--event', 'x', '--identity', 'u');
    const keys = records.map((record) => (typeof record === 'string' ? record : record.idempotency_key));
    assert.deepEqual(keys.slice(0, 2), ['k', '7']);
    assert.match(String(keys[2]), /^import:\S+:3$/);
    assert.equal(keys[3], 'The row has neither a text nor an integer in the column _sluice_key.');
  });
});

describe('CSV', () => {
  const texts = (rows: readonly Row[]) => rows.map(({ value, text }) => value ?? text);
  const csv = async (name: string, content: string | Uint8Array) =>
    texts((await chunksOf(await open(name, content))).flat());

  test('that is not UTF-8 ends the import, since several names would be the same', async () => {
    const latin = Buffer.from('mail\nJos\u00e9@x.com\nJos\u00e8@x.com\n', 'latin1');
    await assert.rejects(
      csv('latin.csv', latin),
      /latin\.csv: it is not UTF-8 on line 2; if it is Windows-1252 \(ANSI\), add --encoding windows-1252/,
    );
    await assert.rejects(csv('cut.csv', Buffer.from('mail\nJos\u00e9').subarray(0, -1)), /it is not UTF-8/);
    const wide = Buffer.from('\ufeffmail\nJos\u00e9\n', 'utf16le');
    assert.deepEqual(await csv('wide.csv', wide), [{ mail: 'Jos\u00e9' }]);
    assert.deepEqual(await csv('marked.csv', '\ufeffmail\nJos\u00e9\n'), [{ mail: 'Jos\u00e9' }]);
  });

  test('has the delimiter of its header, and the others are parts of texts', async () => {
    assert.deepEqual(await csv('comma.csv', 'a,b\n1;2,3\t4\n'), [{ a: '1;2', b: '3\t4' }]);
    assert.deepEqual(await csv('semicolon.csv', '\n"a,x,y";b\n1,2;3\n'), [{ 'a,x,y': '1,2', b: '3' }]);
    assert.deepEqual(await csv('old.csv', 'a,b\r1,2\r'), [{ a: '1', b: '2' }]);
    assert.deepEqual(await csv('one.csv', 'a\n1;2\n'), [{ a: '1;2' }]);
    assert.deepEqual(await csv('tabs.tsv', 'a,a\tb\n1\t2\n'), [{ 'a,a': '1', b: '2' }]);
  });

  test('is read in the encoding that it is in, or that the options name', async () => {
    const text = 'mail;n\nJörg€@x.com;1\n';
    const big = Buffer.from(`\ufeff${text}`, 'utf16le').swap16();
    assert.deepEqual(await csv('big.csv', big), [{ mail: 'Jörg€@x.com', n: '1' }]);
    const ansi = Buffer.from(text.replace('€', '\x80'), 'latin1');
    const input = await open('ansi.csv', ansi, { encoding: 'windows-1252' });
    assert.deepEqual(texts((await chunksOf(input)).flat()), [{ mail: 'Jörg€@x.com', n: '1' }]);
    await assert.rejects(
      csv('late.csv', Buffer.concat([Buffer.from('a\nb\nc\n'), ansi])),
      /UTF-8 on line 5;/,
    );
    await assert.rejects(open('bare.csv', Buffer.from(text, 'utf16le')), /UTF-16 without a byte order mark/);
  });

  test('may begin with the line by which Excel knows the delimiter', async () => {
    const rows = (await chunksOf(await open('sep.csv', '\ufeffsep=;\r\na;b\r\n1,5;2\r\n'))).flat();
    assert.deepEqual(
      rows.map(({ place, value }) => [place, value]),
      [[3, { a: '1,5', b: '2' }]],
    );
    const begin = 'sep=;\na;b\n';
    // A file is read in pieces, and the first one ends within this character.
    const long = `${'x'.repeat((1 << 18) - begin.length - 1)}€`;
    assert.deepEqual(await csv('sep-long.csv', `${begin}${long};2\n`), [{ a: long, b: '2' }]);
  });

  test('may end its lines with CR alone, and have other line ends in quotes', async () => {
    const cells = '"the\nuser",t\rada,"a\nb"\r"bob ""\n""",5" disk\r';
    const rows = [
      { 'the\nuser': 'ada', t: 'a\nb' },
      { 'the\nuser': 'bob "\n"', t: '5" disk' },
    ];
    assert.deepEqual(await csv('returns.csv', cells), rows);
    const feeds = '"the\nuser",t\nada,"a\rb"\n"bob ""\n""",5" disk\n';
    assert.deepEqual(await csv('feeds.csv', feeds), [{ 'the\nuser': 'ada', t: 'a\rb' }, rows[1]]);
    const escaped = await open('returns-mysql.csv', 'u,t\rada,"\\"\n\\""\r');
    const [row] = (await chunksOf(escaped, 0, undefined, { isMysql: true })).flat();
    assert.deepEqual(row?.value, { u: 'ada', t: '"\n"' });
  });

  test('may have a first line whose CR and LF are in different pieces of the file', async () => {
    const long = 'x'.repeat((1 << 18) - 'u,\r'.length);
    assert.deepEqual(await csv('apart.csv', `u,${long}\r\nada,1\r\nbob,2\r\n`), [
      { u: 'ada', [long]: '1' },
      { u: 'bob', [long]: '2' },
    ]);
  });

  test('of a database is read with its forms of NULL and quotes, if the options name them', async () => {
    const file = await open(
      'mysql.csv',
      'u,t\n"ada","say \\"hi\\", \\\\"\n\\N,"x"\n"bob",\\N\n"eve","\\"x"\n',
    );
    const columns = ['--event', 'x', '--identity', 'u'];
    const plain = await mapped(file, ...columns);
    assert.match(String(plain[1]), /has \\N in the column u, as databases write NULL; add --null '\\N'/);
    assert.match(
      String(plain[3]),
      /has \\" in the column t, as MySQL writes a quote; add --csv-dialect mysql/,
    );
    const [ada, nobody, bob] = await mapped(file, ...columns, '--csv-dialect', 'mysql');
    assert.deepEqual((ada as Sent).properties, { t: 'say "hi", \\' });
    assert.match(String(nobody), /Exactly one of identity and user_id/);
    assert.deepEqual([(bob as Sent).identity, (bob as Sent).properties], ['bob', {}]);
    const nulls = await open('null.csv', 'u,t\nada,NULL\n');
    const [record] = await mapped(nulls, ...columns, '--null', 'NULL');
    assert.deepEqual((record as Sent).properties, {});
  });

  test('with decimal commas keeps its numbers once the columns are named, and says which they are', async () => {
    const file = await open('sums.csv', 'u;a;b\nada;801,40;x, y\nbob;1.234.567,5;1,000\neve;1.234;\n');
    const columns = ['--event', 'x', '--identity', 'u'];
    const mapper = mapperOf(...columns);
    for (const row of (await chunksOf(file)).flat()) mapper.map(row);
    assert.deepEqual([...mapper.commas], [['a', 2]]);
    const records = await mapped(file, ...columns, '--decimal-comma', 'a');
    assert.deepEqual(
      records.map((record) => (record as Sent).properties),
      [{ a: '801.40', b: 'x, y' }, { a: '1234567.5', b: '1,000' }, { a: '1234' }],
    );
    const [fault] = await mapped(file, ...columns, '--decimal-comma', 'b');
    assert.match(String(fault), /no number with a decimal comma in the column b/);
  });

  test('with a name twice ends the import, unless the options leave both columns out', async () => {
    const input = await open('twice.csv', 'u,a,u,b,b\nada,1,grace,2,3\n');
    const by = (...args: readonly string[]) => mapped(input, '--event', 'x', ...args);
    await assert.rejects(
      by('--identity', 'u', '--properties', 'a'),
      /the column u is there twice; rename one/,
    );
    await assert.rejects(
      by('--identity', 'a'),
      /the column u is there twice; rename one of them, or name the columns/,
    );
    await assert.rejects(by('--identity', 'a', '--properties', 'a,b'), /the column b is there twice/);
    await assert.rejects(mapped(input, '--preset', 'heap'), /the column u is there twice/);
    const [record] = await by('--identity', 'a', '--properties', 'a');
    assert.deepEqual([(record as Sent).identity, (record as Sent).properties], ['1', { a: '1' }]);
  });

  test('may have many columns without a name, of which no row may have a value', async () => {
    const sheet = await open('sheet.csv', 'u,a,,\nada,1,,\nada,2,x,\nada,3,,\n');
    const args = ['--event', 'x', '--identity', 'u'];
    const fault = 'The row has a value in a column without a name, of which there are several.';
    const propertiesOf = (records: readonly (Sent | string)[]) =>
      records.map((record) => (typeof record === 'string' ? record : record.properties));
    assert.deepEqual(propertiesOf(await mapped(sheet, ...args)), [{ a: '1' }, fault, { a: '3' }]);
    const named = propertiesOf(await mapped(sheet, ...args, '--properties', 'a'));
    assert.deepEqual(named, [{ a: '1' }, { a: '2' }, { a: '3' }]);
    const rows = (await chunksOf(sheet)).flat();
    assert.deepEqual([rows[0]?.value, rows[1]?.text], [{ u: 'ada', a: '1' }, 'ada,2,x,']);
    const one = await open('index.csv', ',u\n0,ada\n');
    assert.deepEqual(propertiesOf(await mapped(one, ...args)), [{ '': '0' }]);
  });

  test('has no row that begins with a byte order mark, as where files were joined', async () => {
    const joined = await open(
      'joined.csv',
      '\ufeffu,a\nada,1\n\n\ufeffu,a\n\ufeff"grace",2\ngrace,\ufeff3\n',
    );
    const rows = (await chunksOf(joined)).flat();
    const fault = 'begins with a byte order mark, as where files were joined';
    assert.deepEqual(
      rows.map(({ value, text, fault: why }) => value ?? [text, why]),
      [{ u: 'ada', a: '1' }, ['\ufeffu,a', fault], ['\ufeff"grace",2', fault], { u: 'grace', a: '\ufeff3' }],
    );
  });

  test('with blanks around its names shows them where a column is not found', async () => {
    const input = await open('padded.csv', ' u , a ,\nada,1,\n');
    await assert.rejects(
      mapped(input, '--event', 'x', '--identity', 'u'),
      /padded\.csv: there is no column u; there are " u ", " a ", ""$/,
    );
    const [record] = await mapped(input, '--event', 'x', '--identity', ' u ');
    assert.deepEqual((record as Sent).properties, { ' a ': '1' });
  });

  test('keeps quotes within a field, and refuses the text within stray ones as one row', async () => {
    const rows = ['1,5" disk', '2,"a"b', '"3,x', '4","y",z', '5,"last"'];
    assert.deepEqual(await csv('quotes.csv', `n,text\r\n${rows.join('\r\n')}\n`), [
      { n: '1', text: '5" disk' },
      { n: '2', text: '"a"b' },
      '"3,x\r\n4","y",z',
      { n: '5', text: 'last' },
    ]);
  });

  test('with a quote that nothing closes ends the import, and names the row where it opens', async () => {
    const rows = '9,x\n'.repeat(20);
    await assert.rejects(
      csv('open.csv', `n,text\n1,a\n2,"b\n${rows}`),
      /open\.csv: a quote that opens in the row at line 3 is never closed/,
    );
    await assert.rejects(
      csv('first.csv', `sep=,\nn,text\n1,"a\n${rows}`),
      /in the row at line 3 is never closed/,
    );
    const far = `n,text\n1,a\n2,"b\n${'9,x\n'.repeat(300_000)}3,"c"\n`;
    await assert.rejects(
      csv('far.csv', far),
      /far\.csv: the row at line 3 has more than 1 MiB; perhaps a quote/,
    );
  });
});

describe('JSON', () => {
  test('of one array has nothing before, between or after its elements', async () => {
    const elements = async (content: string) => {
      const rows = (await chunksOf(await open('array.json', content))).flat();
      return rows.map(({ value, fault }) => value ?? fault);
    };
    assert.deepEqual(await elements('\ufeff \n[ {"u": "]}"} ,\t{"u": []} ]\r\n'), [{ u: ']}' }, { u: [] }]);
    assert.deepEqual(await elements('[]'), []);
    assert.deepEqual(await elements('[{"u": 1},]'), [{ u: 1 }, 'is not JSON']);
    assert.deepEqual(await elements('[{"u": 1} {"u": 2}, 5, null, [{}]]'), [
      'is not JSON',
      'is not an object',
      'is not an object',
      'is not an object',
    ]);
    const one = '[{"u": 1}]';
    for (const content of [
      `${one}]`,
      `${one}}`,
      `${one},`,
      `${one} x`,
      `${one}\n${one}`,
      `${one}"`,
      '[{"u": 1}}',
    ])
      await assert.rejects(
        elements(content),
        /array\.json: it cannot be read as json: the file must be one JSON/,
      );
    for (const content of ['[{"u": 1}', '['])
      await assert.rejects(elements(content), /must be one JSON array, and it ends within it/);
    for (const content of ['x[]', '"[]"', ', []', ''])
      await assert.rejects(
        chunksOf({ ...(await open('other.json', content)), format: 'json' }),
        /other\.json: .* one JSON array/,
      );
  });

  test('may be objects that are written over many lines', async () => {
    const content = '\ufeff{\n  "u": "}{",\n  "a": [1, {"b": "\\""}]\n}\n\n{"u": 2}\n{\n}\n';
    const rows = (await chunksOf(await open('pretty.json', content))).flat();
    assert.deepEqual(
      rows.map(({ place, value }) => [place, value]),
      [
        [1, { u: '}{', a: [1, { b: '"' }] }],
        [2, { u: 2 }],
        [3, {}],
      ],
    );
    const wide = Buffer.from(content, 'utf16le');
    assert.equal((await chunksOf(await open('wide.json', wide))).flat().length, 3);
    await assert.rejects(chunksOf(await open('cut.json', '{\n"u": 1')), /ends within object 1/);
    await assert.rejects(
      chunksOf(await open('comma.json', '{\n"u": 1},\n{}')),
      /after object 1 is something other/,
    );
  });

  test('of lines has an object in each', async () => {
    const lines = [
      '{"u": 1}',
      '\ufeff{"u": 2}',
      '5',
      '"x"',
      '[{}]',
      'null',
      '',
      ' \t',
      '{} {}',
      '{"u": 3}\r',
    ];
    const rows = (await chunksOf(await open('lines.ndjson', lines.join('\n')))).flat();
    assert.deepEqual(
      rows.map(({ place, value, fault }) => [place, value ?? fault]),
      [
        [1, { u: 1 }],
        [2, 'is not JSON'],
        ...[3, 4, 5, 6].map((place) => [place, 'is not an object']),
        [9, 'is not JSON'],
        [10, { u: 3 }],
      ],
    );
  });
});

describe('a chunk of rows', () => {
  test('ends at 1,000 rows or at 8 MiB, in the order of the file', async () => {
    const large = await ndjson('large.ndjson', ...Array.from({ length: 5 }, () => ({ x: 'x'.repeat(3e6) })));
    assert.deepEqual(
      (await chunksOf(large)).map(({ length }) => length),
      [3, 2],
    );
    const broken = await open('broken.csv', `a,b\n${'1\n'.repeat(2_500)}1,2\n`);
    const chunks = await chunksOf(broken);
    assert.deepEqual(
      chunks.map(({ length }) => length),
      [1_000, 1_000, 501],
    );
    const places = Array.from({ length: 2_501 }, (_, at) => at + 2);
    assert.deepEqual(
      chunks.flat().map(({ place }) => place),
      places,
    );
    assert.deepEqual(
      (await chunksOf(broken, 1_999)).flat().map(({ place }) => place),
      places.slice(1_998),
    );
  });

  test('never contains an array element above the bound of a row, which ends the import', async () => {
    async function* oneElement() {
      yield Buffer.from('["');
      const text = Buffer.alloc(1 << 20, 'x');
      for (let at = 0; at < 66; at++) yield text;
    }
    const read = async () => {
      for await (const { place } of splitValues(oneElement())) assert.fail(`element ${place}`);
    };
    await assert.rejects(read(), /element 1 has more than 64 MiB/);
  });
});

test('lists and maps in Parquet are read from writers older than the present rules, and from those that name only the new types', async () => {
  const ofList = [
    [0, 2],
    [1, 2],
    [0, 1],
    [0, 0],
  ] as const;
  const ofOne = [
    [0, 2],
    [0, 1],
    [0, 0],
  ] as const;
  const nullable = [
    [0, 3],
    [1, 2],
    [0, 1],
    [0, 0],
  ] as const;
  const deep = [
    [0, 3],
    [2, 3],
    [1, 3],
    [1, 2],
    [0, 1],
    [0, 0],
  ] as const;
  const content = parquetOf(3, [
    { name: 'user', is: 'required', converted: 'UTF8', values: ['ada', 'bob', 'eve'] },
    { name: 'pairs', is: 'optional', converted: 'LIST', children: 1 },
    { name: 'pair', is: 'repeated', children: 2 },
    { name: 'a', is: 'required', values: [1, 3], levels: ofList },
    { name: 'b', is: 'required', values: [2, 4], levels: ofList },
    { name: 'arrays', is: 'optional', converted: 'LIST', children: 1 },
    { name: 'array', is: 'repeated', children: 1 },
    { name: 'a', is: 'required', values: [5], levels: ofOne },
    { name: 'tuples', is: 'optional', converted: 'LIST', children: 1 },
    { name: 'tuples_tuple', is: 'repeated', children: 1 },
    { name: 'a', is: 'required', values: [6], levels: ofOne },
    { name: 'lists', is: 'optional', converted: 'LIST', children: 1 },
    { name: 'array', is: 'repeated', converted: 'LIST', children: 1 },
    { name: 'array', is: 'repeated', values: [1, 2, 3], levels: deep },
    { name: 'plain', is: 'optional', converted: 'LIST', children: 1 },
    { name: 'array', is: 'repeated', values: [7, 8], levels: ofList },
    { name: 'logical', is: 'optional', logical: 'LIST', children: 1 },
    { name: 'list', is: 'repeated', children: 1 },
    { name: 'element', is: 'optional', values: [9], levels: nullable },
    { name: 'map', is: 'optional', logical: 'MAP', children: 1 },
    { name: 'entries', is: 'repeated', children: 2 },
    { name: 'k', is: 'required', converted: 'UTF8', values: ['x', 'y'], levels: ofList },
    { name: 'v', is: 'optional', values: [1], levels: nullable },
  ]);
  const rows = (await chunksOf(await open('lists.parquet', content))).flat();
  const [ada, bob, eve] = rows.map(({ value }) => value);
  assert.deepEqual(ada, {
    user: 'ada',
    pairs: [
      { a: 1, b: 2 },
      { a: 3, b: 4 },
    ],
    arrays: [{ a: 5 }],
    tuples: [{ a: 6 }],
    lists: [[1, 2], [3], []],
    plain: [7, 8],
    logical: [9, null],
    map: { x: 1, y: null },
  });
  const names = ['pairs', 'arrays', 'tuples', 'lists', 'plain', 'logical'];
  const each = (value: unknown) => Object.fromEntries(names.map((name) => [name, value]));
  assert.deepEqual(bob, { user: 'bob', ...each([]), map: {} });
  assert.deepEqual(eve, { user: 'eve', ...each(null), map: null });
});
