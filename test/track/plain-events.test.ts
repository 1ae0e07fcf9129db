// Plain events take the short way, with the same rows and claims as the full one; all others are left to that.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { bodies, rateLimits } from '../../src/contract/limits.js';
import { eventSchema } from '../../src/contract/records.js';
import { readJsonBody } from '../../src/http/protocol/body.js';
import type { Exchange } from '../../src/http/protocol/exchange.js';
import { eventKind } from '../../src/ingest/event.js';
import { createLimitKeys } from '../../src/ingest/limit-key.js';
import { packGroups } from '../../src/ingest/pack.js';
import { forgetPlainEvents, type PlainEvents, readPlainEvents } from '../../src/ingest/plain-events.js';
import {
  type LimitedGroup,
  type Prepared,
  prepare,
  preparePlain,
  type Ready,
} from '../../src/ingest/prepare.js';
import type { NamedLimit } from '../../src/ingest/request-limits.js';
import { parseDocument } from '../../src/parsing/document.js';
import { atOnce } from '../../src/parsing/steps.js';
import type { LiveEnvironment } from '../../src/registry/environments.js';
import fc, { runs } from '../support/fast-check.js';
import { noSuppressions } from '../support/shard.js';

const nowMs = Date.parse('2026-05-01T00:00:00Z');
const limitKeys = createLimitKeys('secret');

function contextOf(limits: LiveEnvironment['limits'], lenient = false) {
  const environment: LiveEnvironment = {
    registryVersion: 0,
    needsWriteKey: false,
    hasWriteKey: false,
    origins: undefined,
    appId: '1000000001',
    accountId: '1',
    shard: 0,
    lenient,
    allowedIdentities: new Set(),
    limits,
  };
  return { environment, limitKeys, suppressions: noSuppressions, nowMs, strictBulk: false };
}

const unlimited = contextOf({
  track: undefined,
  user_properties: undefined,
  bulk_identity: undefined,
  bulk_app: undefined,
  collect_user: undefined,
  collect_app: undefined,
  app_records: undefined,
  app_bytes: undefined,
});
const limited = contextOf(rateLimits);
const lenient = contextOf(rateLimits, true);

/** The result of the short way; undefined when it does not accept the body. */
function plainly(text: string | Buffer, context = unlimited): Ready | undefined {
  const events = readPlainEvents(Buffer.from(text), true, nowMs);
  return events?.appId === '1000000001' ? preparePlain(eventKind, events, context) : undefined;
}

/** The result of the full way, which every request can take. */
function fully(text: string | Buffer, context = unlimited): Prepared | undefined {
  const document = parseDocument(Buffer.from(text));
  if ('code' in document) return undefined;
  const { value } = document;
  if (typeof value !== 'object' || value === null || !('app_id' in value)) return undefined;
  return value.app_id === '1000000001' ? atOnce(prepare(eventKind, document, context)) : undefined;
}

/** Both ways charge at least the bytes of the rows to the environment's limit of bytes, but know them to different precision. */
function withoutBytes(group: LimitedGroup): LimitedGroup {
  const limits = (group.limits as readonly NamedLimit[]).map((limit) => {
    if (limit.name !== 'app_bytes') return limit;
    assert.ok(limit.cost >= group.records.rowBytesMax);
    return { ...limit, cost: 0 };
  });
  return { ...group, limits };
}

/** Everything that goes to Redis, except the random ids of events without a key. */
function packed({ submission }: Ready): object {
  const group = withoutBytes(submission.groups[0] as LimitedGroup);
  const { decisions, tables } = packGroups([group]);
  const [name, marker, rows, ...counts] = tables;
  const text = String(rows);
  assert.equal(counts.length, 3, 'there is one table');
  assert.ok(Buffer.byteLength(text) <= group.records.rowBytesMax);
  const claims = new Set(Array.from({ length: group.records.length }, (_, i) => group.records.claimOf(i)));
  const known = text.replace(/^(\["1000000001",")([0-9a-f]{32})/gm, (all, head: string, id: string) =>
    claims.has(id) ? all : head,
  );
  return { decisions: decisions.toString('hex'), name, marker, rows: known, counts, limits: group.limits };
}

/** Whether the short way accepted a body. If it did, its result must be that of the full way. */
function agreesOn(text: string | Buffer): boolean {
  let taken = false;
  for (const context of [unlimited, limited, lenient]) {
    const plain = plainly(text, context);
    if (plain === undefined) continue;
    taken = true;
    const full = fully(text, context);
    assert.equal(full?.kind, 'ready');
    const { errors, mendings } = full as Ready;
    assert.deepEqual([errors.length, mendings.size], [0, 0]);
    assert.deepEqual(packed(plain), packed(full as Ready));
  }
  return taken;
}

const usual = {
  event: 'Order Completed',
  identity: 'ada@example.com',
  timestamp: '2026-03-01T12:30:00.250Z',
  properties: { order_id: 'o-1', amount: 12.5, items: 3, refund: -0.25 },
};
const single = (event: object) => JSON.stringify({ app_id: '1000000001', ...event });
const bulk = (...events: object[]) => JSON.stringify({ app_id: '1000000001', events });

test('the schemas of texts have no rule that the short way leaves unchecked', () => {
  for (const [name, schema] of Object.entries<object>(eventSchema.properties)) {
    if (name === 'properties') continue;
    const {
      type,
      minLength,
      maxLength,
      description: _,
      examples: __,
      ...others
    } = schema as Record<string, unknown>;
    assert.deepEqual(others, {}, name);
    assert.deepEqual([type, minLength], ['string', maxLength === undefined ? undefined : 1], name);
  }
});

describe('takes the short way, with the same rows and claims as the full way:', () => {
  const bodies: Record<string, string> = {
    'an event': single(usual),
    'events of a bulk request': bulk(usual, { event: 'x', user_id: '9007199254740991' }),
    'blanks as Python writes them': JSON.stringify(JSON.parse(bulk(usual)), null, 1).replace(/\n */g, ' '),
    'an indented document': JSON.stringify(JSON.parse(bulk(usual, usual)), null, 2),
    'a document with white space around it': ` \r\n\t${single(usual)}\n`,
    'events with keys, two of them equal': bulk(
      { ...usual, idempotency_key: 'a' },
      usual,
      { ...usual, idempotency_key: 'a' },
      { ...usual, idempotency_key: 'ключ' },
    ),
    'text beyond ASCII': bulk({ ...usual, event: 'Größe 🧀 \u2028\u007f', properties: { ключ: '値' } }),
    'another form of time': bulk({ ...usual, timestamp: '2026-03-01t12:30:00+05:30' }),
    'no properties, and an empty object of properties': bulk(
      { event: 'x', identity: 'a' },
      { ...usual, properties: {} },
    ),
    'a session': single({ ...usual, session_id: '77' }),
    'fields in another order, the list first': `{"events":[{"identity":"a","event":"b"}],"app_id":"1000000001"}`,
    'the key __proto__': `{"app_id":"1000000001","event":"x","identity":"a","properties":{"__proto__":"b"}}`,
    'many events': bulk(...Array.from({ length: 1000 }, () => usual)),
  };
  for (const [what, body] of Object.entries(bodies)) test(what, () => assert.ok(agreesOn(body)));
});

describe('leaves to the full way', () => {
  const withProperties = (properties: string) =>
    `{"app_id":"1000000001","event":"x","identity":"a","properties":${properties}}`;
  const bodies: Record<string, string> = {
    'an escape': single({ ...usual, event: 'a\nb' }),
    'an array, a boolean, null and an object as values': bulk(
      ...[[1], true, null, {}].map((value) => ({ ...usual, properties: { value } })),
    ),
    'a key twice': withProperties('{"a":1,"b":2,"a":3}'),
    'a field twice': '{"app_id":"1000000001","event":"x","event":"y","identity":"a"}',
    'two lists':
      '{"app_id":"1000000001","events":[{"event":"x","identity":"a"}],"events":[{"event":"y","identity":"a"}]}',
    'a list in an event of the list':
      '{"app_id":"1000000001","events":[{"event":"x","identity":"a","events":[{"event":"y","identity":"a"}]}]}',
    'a key too long for a quick comparison': withProperties(`{"${'x'.repeat(65)}":1}`),
    'more keys than it compares': withProperties(
      JSON.stringify(Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`k${i}`, 1]))),
    ),
    'an event in a body of more than a MiB': single(usual).padEnd(1024 * 1024 + 1),
    'a reserved key': withProperties('{"screen_name":"a"}'),
    'a key that is a number': withProperties('{"b":1,"2":1,"1":2}'),
    'an unknown field': single({ ...usual, context: 'a' }),
    'a field of an event beside the list': `{"app_id":"1000000001","event":"x","events":[{"event":"x","identity":"a"}]}`,
    'no user': single({ event: 'x' }),
    'two users': single({ ...usual, user_id: '1' }),
    'a user_id with a leading zero': bulk({ event: 'x', user_id: '01' }),
    'a user_id beyond 2^53': bulk({ event: 'x', user_id: '9007199254740992' }),
    'an empty name': single({ ...usual, event: '' }),
    'a name that is too long': single({ ...usual, event: 'x'.repeat(1025) }),
    'a value that is too long': withProperties(`{"a":"${'x'.repeat(1024)}"}`),
    'a date that does not exist': single({ ...usual, timestamp: '2026-02-30T00:00:00.000Z' }),
    'a time too far ahead': single({ ...usual, timestamp: '2026-05-02T00:00:00.001Z' }),
    'more events than are accepted': bulk(...Array.from({ length: 1001 }, () => usual)),
    'no events': bulk(),
    'a second document': `${single(usual)}{}`,
    'bytes that are not UTF-8': 'x',
    ...Object.fromEntries(
      ['-0', '1.50', '1.0', '1e3', '0.0000001', '1234567890123456', '01', '1.', '.5', '-', '0x1', '--1'].map(
        (number) => [`the number ${number}`, withProperties(`{"a":${number}}`)],
      ),
    ),
  };
  for (const [what, body] of Object.entries(bodies)) {
    test(what, () => {
      const bytes = what === 'bytes that are not UTF-8' ? invalidUtf8() : Buffer.from(body);
      assert.equal(agreesOn(bytes), false);
    });
  }

  function invalidUtf8(): Buffer {
    const bytes = Buffer.from(single(usual));
    bytes[bytes.indexOf('Order')] = 0xff;
    return bytes;
  }
});

test('a request that could never fit a limit is left to the full way', () => {
  const events = Array.from({ length: 1000 }, () => usual);
  const tight = contextOf({ ...rateLimits, bulk_identity: { ...rateLimits.bulk_identity, max: 999 } });
  assert.ok(plainly(bulk(...events), limited));
  assert.equal(plainly(bulk(...events), tight), undefined);
});

test('copies a body whose memory is reused', () => {
  const body = Buffer.from(single(usual));
  const events = readPlainEvents(body, false, nowMs);
  assert.ok(events);
  const before = packed(preparePlain(eventKind, events, unlimited) as Ready);
  body.fill(0x20);
  assert.deepEqual(packed(preparePlain(eventKind, events, unlimited) as Ready), before);
});

test('copies into memory that is used again, but not before the events are forgotten', () => {
  const read = (event: object) =>
    readPlainEvents(
      Buffer.from(bulk(...Array.from({ length: 300 }, () => event))),
      false,
      nowMs,
    ) as PlainEvents;
  const rowsOf = (events: PlainEvents) => packed(preparePlain(eventKind, events, unlimited) as Ready);
  const [first, second] = [read(usual), read({ ...usual, event: 'Order Cancelled' })];
  const rows = rowsOf(second);
  const memory = [first.body.buffer, first.spans.buffer];
  assert.ok(![second.body.buffer, second.spans.buffer].some((one) => memory.includes(one)));
  forgetPlainEvents(first);
  const third = read({ ...usual, event: 'Order Delivered' });
  assert.ok(third.body.buffer === memory[0] && third.spans.buffer === memory[1]);
  assert.deepEqual(rowsOf(second), rows);
});

test('keeps at most a quarter more memory than copies need', () => {
  for (const count of [30, 64, 100, 257, 400]) {
    const text = Buffer.from(bulk(...Array.from({ length: count }, () => usual)));
    const { body, spans } = readPlainEvents(text, false, nowMs) as PlainEvents;
    for (const copy of [body, spans]) {
      const { byteLength } = copy.buffer;
      assert.ok(byteLength <= 1.25 * copy.byteLength, `${byteLength} bytes for ${copy.byteLength}`);
    }
  }
});

test('keeps no more memory of a compressed body than its inflated length', async () => {
  const received = gzipSync(single(usual));
  const framing = {
    length: received.length,
    mediaType: 'json',
    encoding: 'gzip',
    unsupportedEncoding: false,
  };
  const exchange = {
    framing,
    ended: false,
    onGone: () => undefined,
    onData: (take: (chunk: Buffer, last: boolean) => void) => take(received, true),
    guard: (work: unknown) => work,
  } as unknown as Exchange;
  const events = await new Promise<ReturnType<typeof readPlainEvents>>((resolve) => {
    readJsonBody(exchange, bodies.singleBytesMax, (_, body, owned) =>
      resolve(readPlainEvents(body, owned, nowMs)),
    );
  });
  // Small buffers share a larger one.
  assert.ok(events && events.body.buffer.byteLength <= Buffer.poolSize);
});

describe('has the same result as the full way, or leaves the request to it:', () => {
  const blank = fc.constantFrom('', '', '', ' ', '\n', '\t', '\r\n  ');
  const common = fc.stringMatching(/^[ !#-[\]-~]{1,12}$/);
  const text = fc
    .tuple(
      fc.oneof({ weight: 20, arbitrary: common }, fc.string({ unit: 'grapheme', maxLength: 8 })),
      fc.nat(60),
    )
    .map(([value, escaped]) =>
      escaped === 0
        ? JSON.stringify(value).replace(/[a-z]/, (letter) => `\\u00${letter.charCodeAt(0).toString(16)}`)
        : JSON.stringify(value),
    );
  const digits = fc.stringMatching(/^[0-9]{0,9}$/);
  const number = fc.oneof(
    fc.integer().map(String),
    fc.double().map((value) => JSON.stringify(value)),
    fc
      .tuple(fc.constantFrom('', '-'), digits, fc.constantFrom('', '.'), digits)
      .map((parts) => parts.join('')),
    fc.constantFrom('0', '-0', '1e3', '1E-7', '0.000001', '0.0000001', '123456789012345', '100'),
  );
  const odd = fc.constantFrom('null', 'true', '[]', '[1,"a"]', '{}', '""', '1');
  const usually = (arbitrary: fc.Arbitrary<string>) =>
    fc.oneof({ weight: 60, arbitrary }, { weight: 1, arbitrary: odd });

  /** An object of these members, in any order, now and then one of them twice. */
  const objectOf = (members: fc.Arbitrary<[key: string, value: string][]>) =>
    fc
      .tuple(members, fc.array(blank, { minLength: 5, maxLength: 5 }), fc.nat(60))
      .map(([list, blanks, twice]) => {
        const [a = '', b = '', c = '', d = '', e = ''] = blanks;
        const all = twice === 0 && list[0] !== undefined ? [...list, list[0]] : list;
        return `{${a}${all.map(([key, value]) => `${key}${b}:${c}${value}${d}`).join(`,${e}`)}}`;
      });
  const properties = objectOf(
    fc.array(
      fc.tuple(
        fc.oneof({ weight: 20, arbitrary: text }, fc.constantFrom('"a"', '"user_id"', '"1"')),
        usually(fc.oneof(text, number)),
      ),
      {
        maxLength: 5,
      },
    ),
  );
  const time = fc.oneof(
    {
      weight: 9,
      arbitrary: fc
        .date({ min: new Date(-1e11), max: new Date(nowMs + 2e11), noInvalidDate: true })
        .map((date) => `"${date.toISOString()}"`),
    },
    fc.constantFrom('"2026-03-01T12:30:00+01:00"', '"2026-02-30T00:00:00.000Z"', '"x"'),
  );
  const id = fc
    .tuple(fc.bigInt(0n, 9_100_000_000_000_000n), fc.nat(30))
    .map(([value, zeros]) => (zeros === 0 ? `"0${value}"` : `"${value}"`));

  const eventFields = fc
    .record(
      {
        event: usually(text),
        user: fc.tuple(fc.constantFrom('identity', 'user_id'), usually(text), id),
        session_id: usually(text),
        timestamp: usually(time),
        idempotency_key: usually(text),
        properties: usually(properties),
        other: fc.constant('1'),
      },
      { requiredKeys: ['event', 'user'] },
    )
    .chain(({ user: [field, name, number], other, ...rest }) => {
      const members = Object.entries({ ...rest, [field]: field === 'identity' ? name : number });
      // Rarely, so that often all events of a request are plain.
      if (other !== undefined && members.length === 7) members.push(['other', other]);
      return fc.shuffledSubarray(members, { minLength: members.length });
    })
    .map((members) =>
      members.map(([key, value]): [string, string] => [JSON.stringify(key), value as string]),
    );
  const event = objectOf(eventFields);
  const appId: [string, string] = ['"app_id"', '"1000000001"'];
  const request = fc.oneof(
    objectOf(eventFields.map((members) => [appId, ...members])),
    objectOf(fc.array(event, { maxLength: 4 }).map((list) => [appId, ['"events"', `[${list.join(',')}]`]])),
  );

  test('requests of every shape', () => {
    let taken = 0;
    const count = runs(3_000);
    fc.assert(
      fc.property(request, (body) => {
        if (agreesOn(body)) taken += 1;
      }),
      { numRuns: count },
    );
    assert.ok(taken > count / 10, `only ${taken} of ${count} were plain`);
  });

  test('usual requests with some bytes changed', () => {
    const bodies = [
      single(usual),
      single({ ...usual, idempotency_key: 'a', session_id: 'b' }),
      bulk(usual, { ...usual, properties: { a: 1, b: 'ü' } }, { event: 'x', user_id: '12' }),
    ].map((body) => Buffer.from(body));
    const change = fc.record({
      at: fc.nat(1000),
      removed: fc.nat(2),
      added: fc.oneof(
        fc.constantFrom(
          '"',
          '\\',
          ',',
          ':',
          '{',
          '}',
          '[',
          ']',
          ' ',
          '\n',
          '0',
          '.',
          '-',
          'e',
          'T',
          '\0',
          'é',
        ),
        fc.constant(''),
      ),
    });
    fc.assert(
      fc.property(
        fc.constantFrom(...bodies),
        fc.array(change, { minLength: 1, maxLength: 2 }),
        (body, changes) => {
          let bytes = body;
          for (const { at, removed, added } of changes) {
            const from = at % bytes.length;
            bytes = Buffer.concat([
              bytes.subarray(0, from),
              Buffer.from(added),
              bytes.subarray(from + removed),
            ]);
          }
          agreesOn(bytes);
        },
      ),
      { numRuns: runs(6_000) },
    );
  });
});
