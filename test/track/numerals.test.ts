// Numbers in properties keep their decimal value on every way into ClickHouse, however many digits they have. A number that a
// double cannot hold never names a user, a time or an environment.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { counts, lengths } from '../../src/contract/limits.js';
import { parseDocument } from '../../src/parsing/document.js';
import { createEnvironments, createTestAccount, unlimited } from '../harness/accounts.js';
import { deletionPaths, getToken } from '../harness/deletion.js';
import { post, untilStored } from '../harness/ingestion.js';
import { fastestMs } from '../support/cpu-time.js';
import fc from '../support/fast-check.js';
import { testSeed } from '../support/seed.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
const [strict = '', lenient = ''] = await createEnvironments(sluice, [
  unlimited,
  [...unlimited, '--validation', 'lenient'],
]);

/** A JSON number's decimal value: an integer without trailing zeros, times a power of ten. */
function decimalOf(text: string): string {
  const match = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text);
  assert.ok(match, `${text} is a number`);
  const [, sign = '', whole = '', fraction = '', power = '0'] = match;
  let digits = BigInt(whole + fraction);
  let exponent = Number(power) - fraction.length;
  if (digits === 0n) return '0';
  for (; digits % 10n === 0n; exponent++) digits /= 10n;
  return `${sign}${digits}e${exponent}`;
}

const digit = fc.constantFrom(...'0123456789');
const digits = (min: number, max: number) =>
  fc.array(digit, { minLength: min, maxLength: max }).map((list) => list.join(''));
const whole = fc.oneof(
  fc.constant('0'),
  fc.tuple(fc.constantFrom(...'123456789'), digits(0, 40)).map(([first, rest]) => first + rest),
  fc.bigInt({ min: 2n ** 53n - 3n, max: 2n ** 53n + 9n }).map(String),
);
const exponent = fc
  .tuple(fc.constantFrom('e', 'E'), fc.constantFrom('', '+', '-'), fc.integer({ min: 0, max: 420 }))
  .map(([letter, sign, power]) => `${letter}${sign}${power}`);
const anyNumeral = fc
  .oneof(
    fc
      .tuple(
        fc.constantFrom('', '-'),
        whole,
        fc.oneof(
          fc.constant(''),
          digits(1, 40).map((text) => `.${text}`),
        ),
        fc.oneof(fc.constant(''), exponent),
      )
      .map((parts) => parts.join('')),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map((double) => JSON.stringify(double)),
  )
  // A number beyond all doubles is refused.
  .filter((numeral) => Number.isFinite(Number(numeral)));

/** A number as it is sent, and as it is stored if that is another text. */
const table: readonly (readonly [sent: string, stored?: string])[] = [
  ['9007199254740991'],
  ['9007199254740992'],
  ['9007199254740993'],
  ['-9007199254740993'],
  ['12345678901234567890'],
  ['123456789012345678901234567890'],
  ['0.123456789012345678901234567890'],
  ['-0', '0'],
  ['-0.0', '0'],
  ['1e-400'],
  ['1E5', '100000'],
  ['123456789012345678e-3'],
  ['1.0000000000000000', '1'],
  ['0.30000000000000004'],
  ['1.50', '1.5'],
  ['1e21', '1e+21'],
  ['100000000000000000000000', '1e+23'],
  ['4.9e-324'],
  ['5e-324'],
  ['1.7976931348623157e308', '1.7976931348623157e+308'],
  ['0e99999999999999999999', '0'],
  ['9'.repeat(lengths.userPropertyValueMax)],
];

type Stored = { readonly name: string; readonly properties: Readonly<Record<string, string>> };

const rowsOf = async (appId: string, kind: 'events' | 'user_properties') =>
  sluice.rows<Stored>(
    `SELECT ${kind === 'events' ? 'event' : 'identity'} AS name, properties FROM ${kind} WHERE app_id = '${appId}'`,
  );

/** Sends each number as a property on every way; settles with the stored texts, one per way. */
async function sendAll(numerals: readonly string[], run: string): Promise<Map<string, string>[]> {
  const sent = new Date().toISOString();
  const nested = (numeral: string) => `"deep": {"in": [{"x": ${numeral}}]}`;
  const ways: [
    path: string,
    body: (list: string[]) => string,
    record: (name: string, numeral: string) => string,
  ][] = [];
  for (const appId of [strict, lenient]) {
    const more = (n: string) => (appId === lenient ? `, ${nested(n)}` : '');
    const ofEvent = (n: string) => `"properties": {"n": ${n}, "list": [${n}, "x"]${more(n)}}`;
    const ofUser = (n: string) =>
      `"properties": {"n": ${n}${more(n)}${appId === lenient ? `, "list": [${n}, "x"]` : ''}}`;
    const within = (fields: string) => (list: string[]) => `{"app_id": "${appId}", ${fields}: [${list}]}`;
    const messages = within(`"sent_at": "${sent}", "messages"`);
    const message = (type: string, name: string) =>
      `"type": "${type}", "id": "${type} ${name}", "user_id": "5"`;
    ways.push(
      [
        '/api/track',
        within('"events"'),
        (name, n) => `{"event": "bulk ${name}", "identity": "a", ${ofEvent(n)}}`,
      ],
      [
        '/api/add_user_properties',
        within('"users"'),
        (name, n) => `{"identity": "bulk ${name}", ${ofUser(n)}}`,
      ],
      [
        '/api/collect',
        messages,
        (name, n) => `{${message('event', name)}, "event": "collect ${name}", ${ofEvent(n)}}`,
      ],
      [
        '/api/collect',
        messages,
        (name, n) => `{${message('user_properties', name)}, "identity": "collect ${name}", ${ofUser(n)}}`,
      ],
    );
  }
  // Messages of Segment's protocol are mended alike in all environments.
  const values = (n: string) => `{"n": ${n}, "list": [${n}, "x"], ${nested(n)}}`;
  const ofSegment = (type: string, fields: (n: string) => string): (typeof ways)[number] => [
    '/v1/batch',
    (list) => `{"writeKey": "${strict}", "batch": [${list}]}`,
    (name, n) => `{"type": "${type}", "userId": "${type} ${name}", "event": "${type} ${name}", ${fields(n)}}`,
  ];
  ways.push(
    ofSegment('track', (n) => `"properties": ${values(n)}, "context": ${values(n)}`),
    ofSegment('identify', (n) => `"traits": ${values(n)}`),
    ofSegment('group', (n) => `"groupId": "a", "traits": ${values(n)}`),
  );
  for (const [path, body, record] of ways) {
    const reply = await post(sluice.baseUrl, path, body(numerals.map((n, at) => record(`${run} ${at}`, n))));
    assert.equal(reply.status, 200, reply.text);
    assert.ok(!/rejected|limited/.test(reply.text), reply.text.slice(0, 500));
  }
  // A request of one record takes the code path for single records.
  for (const appId of [strict, lenient]) {
    const [one = ''] = numerals;
    const event = `{"app_id": "${appId}", "event": "single ${run} 0", "identity": "a", "properties": {"n": ${one}}}`;
    const user = `{"app_id": "${appId}", "identity": "single ${run} 0", "properties": {"n": ${one}}}`;
    assert.equal((await post(sluice.baseUrl, '/api/track', event)).text, '{}');
    assert.equal((await post(sluice.baseUrl, '/api/add_user_properties', user)).text, '{}');
  }
  await untilStored(sluice);
  const stored = numerals.map(() => new Map<string, string>());
  for (const [environment, appId] of [
    ['strict', strict],
    ['lenient', lenient],
  ] as const) {
    for (const kind of ['events', 'user_properties'] as const) {
      for (const { name, properties } of await rowsOf(appId, kind)) {
        const [way, of, at] = name.split(' ');
        if (of !== run) continue;
        for (const [key, value] of Object.entries(properties)) {
          if (key === 'group_id') continue;
          const text = key.endsWith('list') ? (value.split('||')[0] as string) : value;
          stored[Number(at)]?.set(`${environment} ${kind} ${way} ${key}`, text);
        }
      }
    }
  }
  return stored;
}

/**
 * Four ways of events and users in two environments, and four fields of Segment's messages: as a value, in a list and
 * nested, as far as the way allows them.
 */
const waysOfEach = 18 + 4 * 3;

describe('a number in properties', () => {
  test('from the table is stored with its digits, on every way', async () => {
    const all = await sendAll(
      table.map(([sent]) => sent),
      'table',
    );
    for (const [at, [sent, expected = sent]] of table.entries()) {
      const texts = all[at] as Map<string, string>;
      assert.ok(texts.size >= waysOfEach, `${sent}: ${[...texts.keys()]}`);
      for (const [way, text] of texts) {
        // A user's joined array is cut.
        if (way.endsWith('list') && way.includes('user_properties'))
          assert.ok(expected.startsWith(text), way);
        else assert.equal(text, expected, `${sent} ${way}`);
      }
    }
  });

  test('keeps its decimal value, whatever number it is', async () => {
    const numerals = fc.sample(anyNumeral, 400);
    const all = await sendAll(numerals, 'any');
    for (const [at, numeral] of numerals.entries()) {
      const texts = all[at] as Map<string, string>;
      assert.ok(texts.size >= waysOfEach, `seed ${testSeed}, ${numeral}: ${[...texts.keys()]}`);
      for (const [way, text] of texts) {
        assert.equal(
          decimalOf(text),
          decimalOf(numeral),
          `seed ${testSeed}, ${way}: ${numeral} is stored as ${text}`,
        );
      }
    }
  });

  test('that is longer than a value may be is refused, not cut, while the same text is cut', async () => {
    const cases = [
      ['/api/track', lengths.propertyValueMax],
      ['/api/add_user_properties', lengths.userPropertyValueMax],
    ] as const;
    for (const [path, max] of cases) {
      for (const appId of [strict, lenient]) {
        const send = (properties: string) =>
          post(
            sluice.baseUrl,
            path,
            `{"app_id": "${appId}", "identity": "long", ${path === '/api/track' ? '"event": "long",' : ''} "properties": ${properties}}`,
          );
        for (const numeral of [
          `7.${'7'.repeat(max - 1)}`,
          `0.${'3'.repeat(max - 1)}`,
          `1e${'0'.repeat(max - 1)}5`,
        ]) {
          const isHeld = numeral.includes('e');
          const reply = await send(`{"a": 1, "long": ${numeral}}`);
          const refused = `${reply.status} ${reply.code} ${reply.field}`;
          if (isHeld) assert.equal(reply.text, '{}');
          else assert.equal(refused, '400 too_long properties.long');
        }
        assert.equal((await send(`{"long": 7.${'7'.repeat(max - 2)}}`)).text, '{}');
        if (appId === lenient) assert.equal((await send(`{"long": "${'8'.repeat(max + 1)}"}`)).text, '{}');
      }
    }
    const absurd = `7.${'7'.repeat(lengths.propertyValueMax - 1)}`;
    for (const appId of [strict, lenient]) {
      const body = `{"app_id": "${appId}", "event": "long", "identity": "a", "properties": {"list": ["x", ${absurd}]}}`;
      const reply = await post(sluice.baseUrl, '/api/track', body);
      assert.equal(`${reply.code} ${reply.field}`, 'too_long properties.list');
    }
  });

  test('that is longer than a value may be, or infinite, is refused in a list too', async () => {
    const user = lengths.userPropertyValueMax;
    for (const [list, max] of [
      ['[1e400]', 0],
      ['[1, "x", -1e400]', 0],
      ['[[1e400, 2]]', 0],
      ['{"x": [1e400]}', 0],
      [`[${'1'.repeat(user + 1)}]`, user],
      [`["x", ${'1'.repeat(300)}, 2]`, user],
      [`[[-${'1'.repeat(user)}]]`, user],
      [`[${'1'.repeat(user)}]`, lengths.propertyValueMax],
    ] as const) {
      for (const appId of [strict, lenient]) {
        const properties = `"properties": {"a": 1, "list": ${list}}`;
        const sent_at = new Date().toISOString();
        const named = '"event": "in a list", ';
        const collect = (type: string, more: string) =>
          `"sent_at": "${sent_at}", "messages": [{"type": "${type}", "id": "list", "user_id": "5", ${more}${properties}}]`;
        const requests = [
          ['/api/track', `"identity": "list", ${named}${properties}`],
          ['/api/add_user_properties', `"identity": "list", ${properties}`],
          ['/api/collect', collect('user_properties', '')],
          ['/api/collect', collect('event', named)],
        ] as const;
        for (const [path, fields] of requests) {
          const isUser = !fields.includes(named);
          const { status, text } = await post(sluice.baseUrl, path, `{"app_id": "${appId}", ${fields}}`);
          // A strict environment takes lists of events only, and nothing nested.
          const taken =
            max > 0 &&
            (isUser ? appId === lenient && max > user : appId === lenient || !list.startsWith('[['));
          const isTaken = status === 200 && !text.includes('rejected');
          assert.equal(isTaken, taken, `${path} ${fields.slice(0, 200)}: ${text}`);
          if (!taken) assert.match(text, /"code":"(too_long|invalid_type)"/);
          if (!taken) assert.match(text, /"field":"properties\.list/);
        }
      }
    }
  });
});

describe('a number that a double does not hold', () => {
  const one = '1.00000000000000000001';

  test('is no identity, id, name or time in any environment', async () => {
    const time = '1704067200123.00000000001';
    for (const app of [strict, lenient]) {
      const of = `"app_id": "${app}"`;
      for (const [field, fields, path = '/api/track'] of [
        ['app_id', `"app_id": ${app}.00000000000000000001, "event": "x", "identity": "a"`],
        ['identity', `${of}, "event": "x", "identity": ${one}`],
        ['identity', `${of}, "event": "x", "identity": 9007199254740993`],
        ['user_id', `${of}, "event": "x", "user_id": ${one}`],
        ['event', `${of}, "event": ${one}, "identity": "a"`],
        ['timestamp', `${of}, "event": "x", "identity": "a", "timestamp": ${time}`],
        ['idempotency_key', `${of}, "event": "x", "identity": "a", "idempotency_key": ${one}`],
        ['properties', `${of}, "event": "x", "identity": "a", "properties": ${one}`],
        ['user_id', `${of}, "user_id": ${one}, "identity": "a"`, '/api/v1/identify'],
        ['sent_at', `${of}, "sent_at": ${time}, "messages": [1]`, '/api/collect'],
      ] as const) {
        const reply = await post(sluice.baseUrl, path, `{${fields}}`);
        assert.equal(`${reply.status} ${reply.code} ${reply.field}`, `400 invalid_type ${field}`, fields);
      }
      const message = `{"type": "event", "id": "t", "user_id": "5", "event": "x", "time": ${time}}`;
      const collected = await post(
        sluice.baseUrl,
        '/api/collect',
        `{${of}, "sent_at": "${new Date().toISOString()}", "messages": [${message}]}`,
      );
      assert.match(
        collected.text,
        /"rejected","code":"invalid_type".*"field":"time"|"field":"time".*invalid_type/,
      );
    }
  });

  test('names no user to be deleted', async () => {
    const token = await getToken(sluice, await createTestAccount(sluice, 'Nobody'));
    for (const userId of [one, '9007199254740993', '1e-400', '0.9999999999999999999999']) {
      const reply = await fetch(`${sluice.baseUrl}${deletionPaths.submit}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
        body: `{"users": [{"user_id": ${userId}}]}`,
      });
      const { err } = (await reply.json()) as { err: { code: string; field: string } };
      assert.equal(`${reply.status} ${err.code} ${err.field}`, '400 invalid_user_id users.0.user_id', userId);
    }
  });
});

describe('the document of such a number', () => {
  const big = '12345678901234567890';
  const read = (json: string) => {
    const document = parseDocument(Buffer.from(json));
    return 'code' in document ? document.code : document.value;
  };

  test('is otherwise parsed as by JSON.parse', () => {
    const json = `{"properties": {"a": 1, "__proto__": ${big}, "a": ${big}, "7": [${big}, {"__proto__": {"x": ${big}}}], "t": "${big} \\" 1e-400", "constructor": 1e-400}, "n": null}`;
    const asTexts = json.replaceAll(/(?<!")(12345678901234567890|1e-400)(?=[,}\]])/g, '"$1"');
    assert.deepStrictEqual(read(json), JSON.parse(asTexts));
    assert.equal(JSON.stringify(read(json)), JSON.stringify(JSON.parse(asTexts)));
    assert.equal(({} as { x?: unknown }).x, undefined);
  });

  test('keeps its decimal value when it is the only one', () => {
    fc.assert(
      fc.property(fc.oneof(fc.constantFrom(...table.map(([sent]) => sent)), anyNumeral), (numeral) => {
        const { properties } = read(`{"properties": {"n": ${numeral}}}`) as { properties: { n: unknown } };
        const text = typeof properties.n === 'string' ? properties.n : JSON.stringify(properties.n);
        // One number of the table has an exponent beyond all doubles.
        if (!numeral.startsWith('0e')) assert.equal(decimalOf(text), decimalOf(numeral));
      }),
      { numRuns: 5_000, examples: [['9007199254740993'], ['0.1234567890123456789'], ['1e-400'], ['1e-9']] },
    );
  });

  test('is refused if it is not JSON, even if it were JSON with texts in place of its numbers', () => {
    for (const json of [
      `{${big}: 1}`,
      `{"properties": {${big}: 1}}`,
      `[0${big}]`,
      `[${big}.]`,
      `[+${big}]`,
      `[${big}e]`,
      `[-${'-'}${big}]`,
      `[.${big}]`,
      `["a"${big}]`,
    ]) {
      assert.equal(read(json), 'invalid_json', json);
    }
  });

  test('has a bounded number of long numbers, wherever they are', () => {
    const max = counts.documentLongNumeralsMax;
    const long = ['1e-400', '0.30000000000000004', '1e400', '1e308'];
    const others = ['1e-300', '1.00000000000000000000', '0e999', '"1e-400"'];
    const list = `${others},${Array(max / long.length)
      .fill(long)
      .join()}`;
    assert.equal(typeof read(`{"properties": [${list}]}`), 'object');
    for (const numeral of long)
      assert.equal(read(`{"properties": [${numeral},${list}]}`), 'too_long', numeral);
  });

  test('is read in time that grows with its length', () => {
    const million = '0'.repeat(1_000_000);
    const texts = [
      `{"properties": {"n": ${big}, "list": [${Array(1_000_000).fill(1).join()}]}}`,
      `[${Array(100_000).fill('1e-400').join()}]`,
      `[1${million}1${million}]`,
      `[0.${million}1]`,
      `[${'1'.repeat(2_000_000)}]`,
      `["${'\\"'.repeat(1_000_000)}", 1e5]`,
    ];
    for (const json of texts) {
      // Measured in reads of one character, so that slow machines count alike: 3 to 32, where quadratic time would take 200.
      const looks = fastestMs(() => read(json)) / fastestMs(() => sumOfUnits(json));
      assert.ok(looks < 100, `${json.slice(0, 10)}: ${looks} looks`);
    }
  });
});

function sumOfUnits(text: string): number {
  let sum = 0;
  for (let at = 0; at < text.length; at++) sum += text.charCodeAt(at);
  return sum;
}
