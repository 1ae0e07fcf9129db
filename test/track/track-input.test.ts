// What POST /api/track does with whole bodies: content types, encodings, sizes, JSON documents and names of prototypes in
// them. There is one row per input, and at the end one check of everything that they stored.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import * as zlib from 'node:zlib';
import { bodies } from '../../src/contract/limits.js';
import type { OutcomeCode } from '../../src/contract/outcomes.js';
import { type Sent, track } from '../harness/track.js';
import {
  accepts,
  checkAccepted,
  checkRefused,
  describeRows,
  openLedger,
  type Row,
  refuses,
  sends,
  sendsText,
  withProperty,
} from '../harness/track-rows.js';
import { checkLogs } from '../support/logs.js';
import { sharedSluice } from '../support/sluice.js';

const { constants, deflateRawSync, deflateSync, gzipSync } = zlib;
/** Absent before Node 22.15. */
const { zstdCompressSync } = zlib as { readonly zstdCompressSync?: (content: string | Uint8Array) => Buffer };

const gzipHeader = { 'content-encoding': 'gzip' };
const gzipped = (body: string | Uint8Array): Sent => ({ body: gzipSync(body), headers: gzipHeader });

/** Compressed without matches (one code per byte), so that blanks shrink to an eighth and not to a thousandth. */
const gzippedLittle = (body: string): Sent => ({
  body: gzipSync(body, { strategy: constants.Z_HUFFMAN_ONLY }),
  headers: gzipHeader,
});

/** The JSON, filled up with blanks to this many bytes. */
const paddedTo = (bytes: number, value: unknown) => {
  const json = JSON.stringify(value);
  return json + ' '.repeat(bytes - Buffer.byteLength(json));
};

/** Puts bytes into the JSON in place of the identity. */
const identityBytes = (json: string, bytes: string): Uint8Array => {
  const start = json.indexOf('visitor-');
  return Buffer.concat([
    Buffer.from(json.slice(0, start)),
    Buffer.from(bytes, 'hex'),
    Buffer.from(json.slice(start + 'visitor-0000'.length)),
  ]);
};

const contentTypes: Row[] = [
  ...[
    'application/json',
    'Application/json',
    'APPLICATION/JSON',
    'application/json; charset=utf-8',
    'application/json;charset=UTF-8',
    'application/json; charset="utf-8"',
    'application/json;charset=utf8',
  ].map((type) => sends(type, undefined, (event) => ({ body: event, headers: { 'content-type': type } }))),
  ...[
    undefined,
    'text/plain',
    'text/json',
    'text/plain;charset=UTF-8',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/json, application/json',
    'application/jsonp',
    'application/json+x',
    'application',
    'application/octet-stream',
    'application/json; charset=utf-16',
    'application/json; charset=iso-8859-1',
    'application/json; charset=utf-8; charset=utf-16',
  ].map((type) =>
    sends(type ?? 'no content type', 'invalid_content_type', (event) => ({
      body: event,
      headers: { 'content-type': type },
    })),
  ),
];

const withEncoding = (encoding: string) => (event: unknown) => ({
  body: gzipSync(JSON.stringify(event)),
  headers: { 'content-encoding': encoding },
});
const changedGzip = (change: (gzip: Buffer) => Uint8Array) => (event: unknown) => ({
  body: change(gzipSync(JSON.stringify(event))),
  headers: { 'content-encoding': 'gzip' },
});

const compressors = [
  ['deflate', 'deflate', (content: string) => deflateSync(content)],
  ['deflate in capitals', 'Deflate', (content: string) => deflateSync(content)],
  ['raw deflate', 'deflate', (content: string) => deflateRawSync(content)],
  ...(zstdCompressSync === undefined ? [] : [['zstd', 'zstd', zstdCompressSync] as const]),
] as const;

/** Node 22 inflates a truncated zstd frame without an error, as far as its blocks are complete; the result is no JSON document. */
const cutCode = (name: string) =>
  name === 'zstd' && process.version.startsWith('v22.') ? 'invalid_json' : 'invalid_encoding';

/** Text that hardly shrinks. */
const noise = (bytes: number) => randomBytes(bytes / 2).toString('hex');

const encodings: Row[] = [
  sends('identity', undefined, (event) => ({ body: event, headers: { 'content-encoding': 'identity' } })),
  sends('gzip', undefined, withEncoding('gzip')),
  sends('GZIP', undefined, withEncoding('GZIP')),
  sends('gzip in two members', undefined, (event) => {
    const json = JSON.stringify(event);
    return {
      body: Buffer.concat([gzipSync(json.slice(0, 20)), gzipSync(json.slice(20))]),
      headers: { 'content-encoding': 'gzip' },
    };
  }),
  ...[
    'br',
    'compress',
    'gzip, gzip',
    'gzip, br',
    'x',
    ...(zstdCompressSync === undefined ? ['zstd'] : []),
  ].map((encoding) => sends(`${encoding} encoding`, 'unsupported_encoding', withEncoding(encoding))),
  ...compressors.flatMap(([name, encoding, compress]) => {
    const headers = { 'content-encoding': encoding };
    const row = (what: string, code: OutcomeCode | undefined, body: (json: string) => Uint8Array) =>
      sends(`${name}${what}`, code, (event) => ({ body: body(JSON.stringify(event)), headers }));
    return [
      row('', undefined, compress),
      row(' with bytes behind it', 'invalid_encoding', (event) =>
        Buffer.concat([compress(event), Buffer.of(0)]),
      ),
      row(' in two pieces', 'invalid_encoding', (event) =>
        Buffer.concat([compress(event.slice(0, 20)), compress(event.slice(20))]),
      ),
      row(' that is plain JSON', 'invalid_encoding', (event) => Buffer.from(event)),
      row(' that is empty', 'invalid_encoding', () => Buffer.alloc(0)),
      row(' that is one byte of it', cutCode(name), (event) => compress(event).subarray(0, 1)),
      row(' of nothing', 'invalid_json', () => compress('')),
      row(' that inflates to more than 200 times its size', 'body_too_large', (event) =>
        compress(event + ' '.repeat(bodies.singleBytesMax / 2)),
      ),
      row(' that inflates to 1 MiB and a byte', 'body_too_large', (event) =>
        compress(event.replace(/}$/, `,"padding":"${noise(bodies.singleBytesMax)}"}`)),
      ),
      row(' that is cut short', cutCode(name), (event) => compress(event).subarray(0, -1)),
    ];
  }),
  ...(zstdCompressSync === undefined
    ? []
    : [
        sends('zstd that needs a window of 16 MiB', 'invalid_encoding', (event) => {
          const frame = zstdCompressSync(JSON.stringify(event));
          // The frame's descriptor without the flag for a size, and the window, which is 2^(10 + 14) bytes.
          const size = [1, 2, 4, 8][(frame[4] as number) >> 6] as number;
          const header = Buffer.of((frame[4] as number) & 0b0001_1111 & ~0x20, 14 << 3);
          const body = Buffer.concat([frame.subarray(0, 4), header, frame.subarray(5 + size)]);
          return { body, headers: { 'content-encoding': 'zstd' } };
        }),
      ]),
  sends('plain JSON called gzip', 'invalid_encoding', (event) => ({
    body: event,
    headers: { 'content-encoding': 'gzip' },
  })),
  sends('gzip of gzip', 'invalid_json', (event) => gzipped(gzipSync(JSON.stringify(event)))),
  sends(
    'gzip that is cut short',
    'invalid_encoding',
    changedGzip((gzip) => gzip.subarray(0, -5)),
  ),
  sends(
    'gzip with bytes behind it',
    'invalid_encoding',
    changedGzip((gzip) => Buffer.concat([gzip, gzip.subarray(0, 9)])),
  ),
  sends(
    'gzip with a wrong checksum',
    'invalid_encoding',
    changedGzip((gzip) => {
      gzip.writeUInt8(gzip.readUInt8(gzip.length - 8) ^ 1, gzip.length - 8);
      return gzip;
    }),
  ),
  sends('an empty body called gzip', 'invalid_encoding', () => ({
    body: new Uint8Array(),
    headers: { 'content-encoding': 'gzip' },
  })),
  sends('gzip of nothing', 'invalid_json', () => gzipped('')),
];

const sizes: Row[] = [
  sends('1 MiB of blanks and an event', undefined, (event) => ({
    body: paddedTo(bodies.singleBytesMax, event),
  })),
  sends('an event of 1 MiB', undefined, (event) => {
    const rest = Buffer.byteLength(JSON.stringify({ ...event, padding: '' }));
    return { body: { ...event, padding: 'x'.repeat(bodies.singleBytesMax - rest) } };
  }),
  sends('1 MiB and a byte', 'body_too_large', (event) => ({
    body: paddedTo(bodies.singleBytesMax + 1, event),
  })),
  sends('1 MiB and a byte that speaks of "events": [', 'body_too_large', (event) => ({
    body: paddedTo(bodies.singleBytesMax + 1, { ...event, session_id: '"events":[{}]' }),
  })),
  sends('1 MiB, inflated', undefined, (event) => gzippedLittle(paddedTo(bodies.singleBytesMax, event))),
  sends('1 MiB of blanks that inflated to more than 200 times their size', 'body_too_large', (event) =>
    gzipped(paddedTo(bodies.singleBytesMax, event)),
  ),
  sends('1 MiB and a byte, inflated', 'body_too_large', (event) =>
    gzipped(paddedTo(bodies.singleBytesMax + 1, event)),
  ),
  sends('16 MiB and a byte, inflated', 'body_too_large', (event) =>
    gzipped(paddedTo(bodies.bulkBytesMax + 1, { app_id: event.app_id, events: [event] })),
  ),
  sends('a bulk request of 16 MiB', undefined, (event) => ({
    body: paddedTo(bodies.bulkBytesMax, { app_id: event.app_id, events: [event] }),
  })),
  sends('a bulk request of 16 MiB, inflated', undefined, (event) =>
    gzippedLittle(paddedTo(bodies.bulkBytesMax, { app_id: event.app_id, events: [event] })),
  ),
];

const documents: Row[] = [
  ...['', ' ', '\r\n\t '].map((text) =>
    sendsText(`${JSON.stringify(text)} as document`, 'invalid_json', () => text),
  ),
  ...['null', 'true', '1', '"x"', '[]', '[{}]'].map((text) =>
    sendsText(`${text} as document`, 'invalid_type', () => text),
  ),
  { ...sendsText('{} as document', 'missing_field', () => '{}'), field: 'app_id' },
  sendsText('blanks around the document', undefined, (json) => ` \t\r\n${json} \t\r\n`),
  sendsText('a form feed before the document', 'invalid_json', (json) => `\f${json}`),
  sendsText('a no-break space before the document', 'invalid_json', (json) => `\u00a0${json}`),
  sendsText('a byte order mark', 'invalid_json', (json) => `\ufeff${json}`),
  sendsText('UTF-16', 'invalid_json', (json) => Buffer.from(json, 'utf16le')),
  sendsText('UTF-16 with a byte order mark', 'invalid_json', (json) =>
    Buffer.from(`\ufeff${json}`, 'utf16le'),
  ),
  sendsText('two documents', 'invalid_json', (json) => json + json),
  sendsText('a line per document', 'invalid_json', (json) => `${json}\n${json}\n`),
  sendsText('something behind the document', 'invalid_json', (json) => `${json}x`),
  sendsText('NUL behind the document', 'invalid_json', (json) => `${json}\0`),
  sendsText('a document that is cut short', 'invalid_json', (json) => json.slice(0, -1)),
  ...Object.entries({
    ff: 'FF',
    c0af: 'an overlong slash',
    e080af: 'a longer overlong slash',
    eda080: 'an encoded surrogate',
    eda0bdedb880: 'a pair of encoded surrogates',
    f4908080: 'a code point above 10FFFF',
    '80': 'a lone continuation byte',
    e282: 'a sequence that is cut short',
  }).map(([bytes, what]) =>
    sendsText(`invalid UTF-8: ${what}`, 'invalid_json', (json) => identityBytes(json, bytes)),
  ),
  sendsText('invalid UTF-8: cut short by the end', 'invalid_json', (json) =>
    Buffer.concat([Buffer.from(json), Buffer.from('e282', 'hex')]),
  ),
  sendsText(
    'a replacement character that was sent as such',
    undefined,
    (json) => identityBytes(json, 'efbfbd'),
    {
      identity: '\ufffd',
    },
  ),
  sendsText('a byte order mark inside a string', undefined, (json) => identityBytes(json, 'efbbbf'), {
    identity: '\ufeff',
  }),
  sendsText('DEL and U+2028 inside a string', undefined, (json) => identityBytes(json, '7fe280a8'), {
    identity: '\x7f\u2028',
  }),
  ...['00', '01', '09', '0a', '1f'].map((byte) =>
    sendsText(`the control character ${byte} unescaped in a string`, 'invalid_json', (json) =>
      identityBytes(json, byte),
    ),
  ),
  sendsText(
    'escapes in keys and values',
    undefined,
    (json) =>
      json.replace('"identity":"', '"\\u0069dentity":"\\u00e9\\ud83d\\ude00\\/').replace(/visitor-\d+/, ''),
    { identity: 'é😀/' },
  ),
  // JSON.parse keeps the last of equal keys; what is stored is one of the two and never both.
  sendsText('equal keys, of which the last counts', undefined, (json) =>
    json.replace('{', '{"identity":"first",'),
  ),
  sendsText('equal keys, one of them escaped', undefined, (json) =>
    json.replace('{', '{"\\u0069dentity":"first",'),
  ),
  sendsText('an unknown field', undefined, (json) =>
    json.replace('{', '{"library":"server","send":{"to":[1]},'),
  ),
];

const prototypes: Row[] = [
  sendsText('__proto__ among the fields', undefined, (json) =>
    json.replace('{', '{"__proto__":{"polluted":1},'),
  ),
  ...[
    '{"__proto__":{"identity":"ghost"},',
    '{"constructor":{"prototype":{"identity":"ghost"}},',
    '{"prototype":{"identity":"ghost"},',
  ].map((start) => ({
    ...sends(`an identity by way of ${start}`, 'missing_user', ({ identity: _, ...event }) => ({
      body: JSON.stringify(event).replace('{', start),
    })),
    field: 'identity',
  })),
  {
    ...sends('an app_id by way of __proto__', 'missing_field', ({ app_id, ...event }) => ({
      body: JSON.stringify(event).replace('{', `{"__proto__":{"app_id":"${app_id}"},`),
    })),
    field: 'app_id',
  },
  {
    ...sends('an event by way of __proto__', 'missing_field', ({ event: _, ...rest }) => ({
      body: JSON.stringify(rest).replace('{', `{"__proto__":{"event":"ghost"},`),
    })),
    field: 'event',
  },
  sendsText('__proto__ as a property', undefined, (json) => withProperty(json, '__proto__', '"x"'), {
    properties: { ['__proto__']: 'x' },
  }),
  {
    ...sendsText('an object in the property __proto__', 'invalid_type', (json) =>
      withProperty(json, '__proto__', '{"polluted":"x"}'),
    ),
    field: 'properties.__proto__',
  },
  sendsText(
    'names of methods as properties',
    undefined,
    (json) =>
      json.replace(
        /\}$/,
        ',"properties":{"constructor":"c","toString":"s","valueOf":1,"hasOwnProperty":"h","toJSON":"j","then":"t","length":2,"":"empty"}}',
      ),
    {
      properties: {
        constructor: 'c',
        toString: 's',
        valueOf: '1',
        hasOwnProperty: 'h',
        toJSON: 'j',
        // biome-ignore lint/suspicious/noThenProperty: the point of the row
        then: 't',
        length: '2',
        '': 'empty',
      } as unknown as Record<string, string>,
    },
  ),
  ...['__proto__', 'constructor', 'toString', 'hasOwnProperty'].flatMap((name) => [
    refuses(`${name} as app_id`, 'unknown_app_id', 'app_id', { app_id: name }),
    accepts(`${name} as identity`, { identity: name }, { identity: name }),
    accepts(`${name} as event`, { event: name }, { event: name }),
    accepts(`${name} as session_id`, { session_id: name }, { session_id: name }),
    accepts(`${name} as idempotency_key`, { idempotency_key: name }),
  ]),
  refuses('no identity after all that', 'missing_user', 'identity', { identity: undefined }),
];

// The cases of the JSON test suites, each as the value of a field that the service does not know.
const wellFormed = [
  '[[]   ]',
  '[""]',
  '[false,null,true,1,"1",{}]',
  '[1\n]',
  '[0e+1, 0e1, 0E1, -0, -0.0, 20e1, 1E22, 1E-2, 1E+2, 123e65, 123.456e78, -1, -123]',
  `[-0.${'0'.repeat(75)}1]`,
  '{"asd":"sdf", "dfg":"fgh"}',
  '{"a":"b","a":"c"}',
  '{"a":"b","a":"b"}',
  '{"":0}',
  '{"foo\\u0000bar": 42}',
  '{"min": -1.0e+28, "max": 1.0e+28}',
  '{\n"a":\t"b"\r\n}',
  '["\\u0060\\u012a\\u12AB"]',
  '["\\uD801\\udc37", "\\ud83d\\ude39\\ud83d\\udc8d", "\\uDBFF\\uDFFF"]',
  '["\\"\\\\\\/\\b\\f\\n\\r\\t"]',
  '["\\\\u0000", "\\u0000", "\\u0022", "\\u005C"]',
  '["a/*b*/c/*d//e"]',
  '["\\uFFFF", "\\uFDD0", "\\uD83F\\uDFFE"]',
  '["\u2028\u2029\u007f\uffff\u{10ffff}\u{1bfff}"]',
  '"asd "',
  'null',
  '-0.1',
  ' [] ',
] as const;

const malformed = [
  ...['[1 true]', '["": 1]', '[,1]', '[1,,2]', '["x",,]', '["x"]]', '["",]', '["x"', '[x', '[3[4]]', '[1:2]'],
  ...[
    '[,]',
    '[-]',
    '[   , ""]',
    '["a",\n4\n,1,',
    '[1,]',
    '[1,,]',
    '["\va"\\f]',
    '[*]',
    '[""',
    '[1,\n1\n,1',
    '[{}',
  ],
  ...[
    '[fals]',
    '[nul]',
    '[tru]',
    '[True]',
    '[++1234]',
    '[+1]',
    '[+Inf]',
    '[-01]',
    '[-1.0.]',
    '[-2.]',
    '[-NaN]',
  ],
  ...['[.-1]', '[.2e-3]', '[0.1.2]', '[0.3e+]', '[0.3e]', '[0.e1]', '[0E+]', '[0e]', '[1.0e+]', '[1 000.0]'],
  ...[
    '[1eE2]',
    '[2.e+3]',
    '[9.e+]',
    '[Inf]',
    '[NaN]',
    '[\uff11]',
    '[1+2]',
    '[0x1]',
    '[0x42]',
    '[Infinity]',
    '[1n]',
  ],
  ...[
    '[0e+-1]',
    '[-123.123foo]',
    '[-Infinity]',
    '[-foo]',
    '[- 1]',
    '[-012]',
    '[-.123]',
    '[-1x]',
    '[1ea]',
    '[1.]',
  ],
  ...[
    '[.123]',
    '[1.2a-3]',
    '[1.8011670033376514H-308]',
    '[012]',
    '[1_000]',
    '["x", truth]',
    'undefined',
    'NaN',
  ],
  ...[
    '{[: "x"}',
    '{"x", null}',
    '{"x"::"b"}',
    '{\u{1f1e8}\u{1f1ed}}',
    '{"a":"a" 123}',
    "{key: 'value'}",
    '{"a" b}',
  ],
  ...[
    '{:"b"}',
    '{"a" "b"}',
    '{"a":',
    '{"a"',
    '{1:1}',
    '{9999E9999:1}',
    '{null:null,null:null}',
    '{"id":0,,,,,}',
  ],
  ...["{'a':0}", '{"id":0,}', '{"a":"b"}/**/', '{"a":"b"}//', '{"a":"b"}/', '{"a":"b",,"c":"d"}', '{a: "b"}'],
  ...[
    '{"a":"a',
    '{ "foo" : "bar", "a" }',
    '{"a":"b"}#',
    '{"a":/*comment*/"b"}',
    '{"a": true} "x"',
    '{"a":"b"}#{}',
  ],
  ...['["\\uD800\\"]', '["\\uD800\\u"]', '["\\uD800\\u1"]', '["\\uD800\\u1x"]', '["\\u00A"]', '["\\uqqqq"]'],
  ...['["\\uD834\\uDd"]', '["\\uD800\\uD800\\x"]', '["\\a"]', '["\\x00"]', '["\\\\\\"]', '["\\\u{1f300}"]'],
  ...[
    '[\\u0020"asd"]',
    '[\\n]',
    '"',
    "['single quote']",
    'abc',
    '["\\',
    '["new\nline"]',
    '["\t"]',
    '"\\UA66D"',
  ],
  ...[
    '<.>',
    '[<null>]',
    '[1]x',
    '[1]]',
    '["asd]',
    'a\u00e5',
    '1]',
    '{"x": true,',
    '[][]',
    ']',
    '[',
    '{}}',
    '{"":',
  ],
  ...[
    "['",
    '[,',
    '[{',
    '["a',
    '{',
    '{]',
    '{,',
    '{[',
    '{"a',
    "{'a'",
    '["\\{["\\{["\\{["\\{',
    '\u00e9',
    '*',
    '',
  ],
  ...[
    '[\\u000A""]',
    '[1',
    '[ false, nul',
    '[ true, fals',
    '[ false, tru',
    '\u2060',
    '[\u2060]',
    '[\f]',
    '[\0]',
  ],
];

const sluice = await sharedSluice();
/** Few other files ask this process, so that what it takes is for this file's requests. */
const api = sluice.api[1] ?? assert.fail('no second process');
const ledger = openLedger(sluice, sluice.appId);

for (const [title, rows] of Object.entries({
  'content types': contentTypes,
  'content encodings': encodings,
  'sizes of bodies': sizes,
  documents,
  'names of prototypes': prototypes,
})) {
  describeRows(title, rows, () => ledger);
}

describe('JSON', () => {
  const documentOf = (name: string, value: string) => {
    const event = ledger.newEvent(`${name} ${value}`.slice(0, 1000));
    return { event, json: JSON.stringify(event).replace('{', `{"more":${value},`) };
  };

  test('accepts well-formed JSON as the value of an unknown field', async () => {
    for (const value of wellFormed) {
      const { event, json } = documentOf('well-formed', value);
      JSON.parse(json);
      checkAccepted(await track(sluice.baseUrl, { body: json }));
      ledger.expect(event);
    }
  });

  test('answers 400 invalid_json to malformed JSON in the same place', async () => {
    for (const value of malformed) {
      const { json } = documentOf('malformed', value);
      assert.throws(() => JSON.parse(json), value);
      const reply = await track(sluice.baseUrl, { body: json });
      assert.equal((reply.json as { err: { code: string } }).err.code, 'invalid_json', value);
      checkRefused(reply, 'invalid_json');
    }
  });
});

describe('a gzip of 1 GiB', () => {
  test('is answered 413, and the process stays small', {
    skip: !existsSync('/proc/self/clear_refs'),
  }, async () => {
    const { pid } = api;
    const peakBytes = () =>
      Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
    const body = gzipOfZeros(1024);
    checkRefused(await track(api.baseUrl, { body, headers: gzipHeader }), 'body_too_large');
    // Resets the peak to what the process has now.
    writeFileSync(`/proc/${pid}/clear_refs`, '5');
    const before = peakBytes();
    checkRefused(await track(api.baseUrl, { body, headers: gzipHeader }), 'body_too_large');
    const grownBytes = peakBytes() - before;
    assert.ok(grownBytes < 2 * bodies.bulkBytesMax, `grew by ${Math.round(grownBytes / 2 ** 20)} MiB`);
  });
});

/** A gzip that inflates to this many MiB, made without inflating it. */
function gzipOfZeros(mebibytes: number): Uint8Array {
  const block = deflateRawSync(Buffer.alloc(2 ** 20), { finishFlush: constants.Z_FULL_FLUSH });
  const blocks = Array.from({ length: mebibytes }, () => block);
  const lastBlock = Buffer.from('0300', 'hex');
  return Buffer.concat([Buffer.from('1f8b08000000000000ff', 'hex'), ...blocks, lastBlock, Buffer.alloc(8)]);
}

describe('after all that', () => {
  test('exactly what was accepted is stored', () => ledger.check());

  test('the log is one JSON document per line and repeats nothing that was sent', () => {
    checkLogs(sluice, /visitor-|ghost/);
  });
});
