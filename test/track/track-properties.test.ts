// Random inputs to POST /api/track: a valid event is stored as it was sent. Timestamps, user ids and arrays are compared with oracles that share no code with the service. A failure prints the seed that repeats it.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { lengths, reservedEventPropertyKeys, timestampAheadMsMax } from '../../src/contract/limits.js';
import { isUserId } from '../../src/contract/user-id.js';
import { joinArray } from '../../src/ingest/properties.js';
import { readTimestamp } from '../../src/ingest/timestamp.js';
import { cutToCodePoints } from '../../src/parsing/code-points.js';
import { createEnvironment, unlimited } from '../harness/accounts.js';
import { type Between, track } from '../harness/track.js';
import { checkAccepted, type Ledger, openLedger } from '../harness/track-rows.js';
import fc, { runs } from '../support/fast-check.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();

const pureRuns = runs(10_000);

// Every code point that is no surrogate. Code points that break careless code come more often than by chance.
const character = fc.oneof(
  { weight: 4, arbitrary: fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 1 }) },
  { weight: 4, arbitrary: fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }) },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      '\0',
      '\n',
      '\t',
      '\r',
      '"',
      "'",
      '\\',
      '|',
      '\u0085',
      '\u2028',
      '\ufeff',
      '\ufffd',
      '\uffff',
      '😀',
      '\u0301',
      '\u202e',
    ),
  },
);

/** Text of up to this many code points. Short ones and those at the bound come more often. */
const text = (minLength: number, maxLength: number) =>
  fc.oneof(
    { weight: 8, arbitrary: fc.string({ unit: character, minLength, maxLength: Math.min(maxLength, 40) }) },
    {
      weight: 1,
      arbitrary: fc
        .tuple(character, fc.constantFrom(maxLength, maxLength - 1))
        .map(([unit, length]) => unit.repeat(length)),
    },
    { weight: 1, arbitrary: fc.constantFrom('null', '__proto__', 'constructor', '\\N', '{}', '[]', "'||'") },
  );

const number = fc.double({ noNaN: true, noDefaultInfinity: true });
const asText = (value: string | number) => (Object.is(value, -0) ? '0' : String(value));

describe('arrays', () => {
  const list = fc.array(fc.oneof(fc.string({ unit: character, maxLength: 600 }), number), { maxLength: 40 });

  test('are joined with || and cut after 1024 code points', () => {
    fc.assert(
      fc.property(list, (elements) => {
        const whole = Array.from(elements.map(asText).join('||'));
        assert.equal(joinArray(elements), whole.slice(0, lengths.joinedArrayMax).join(''));
      }),
      { numRuns: pureRuns / 10 },
    );
  });

  test('are never cut inside a character, and never cut twice', () => {
    fc.assert(
      fc.property(list, (elements) => {
        const joined = joinArray(elements);
        assert.ok(joined.isWellFormed());
        assert.ok(elements.map(asText).join('||').startsWith(joined));
        assert.equal(cutToCodePoints(joined, lengths.joinedArrayMax), joined);
      }),
      { numRuns: pureRuns / 10 },
    );
  });
});

test('text is cut after a given number of code points', () => {
  fc.assert(
    fc.property(fc.string({ unit: character, maxLength: 60 }), fc.nat(60), (whole, max) => {
      assert.equal(cutToCodePoints(whole, max), Array.from(whole).slice(0, max).join(''));
    }),
    { numRuns: pureRuns },
  );
});

describe('user_id', () => {
  const bound = 2n ** 53n - 1n;

  /** The plain decimal form of an integer from 0 to 2^53 - 1, by way of BigInt. */
  function oracle(candidate: string): boolean {
    try {
      const value = BigInt(candidate);
      return value.toString() === candidate && value >= 0n && value <= bound;
    } catch {
      return false;
    }
  }

  const candidate = fc.oneof(
    fc.bigInt({ min: -10n, max: bound + 10n }).map(String),
    fc.bigInt({ min: bound - 3n, max: bound + 3n }).map(String),
    fc.bigInt({ min: 0n, max: 2n ** 70n }).map(String),
    fc.string({ unit: fc.constantFrom(...'0123456789+-.eExn_ \n\u0661\uff11'), maxLength: 18 }),
    number.map(String),
    fc.string({ unit: character }),
  );

  test('is accepted exactly when it is the plain form of a safe integer', () => {
    fc.assert(
      fc.property(candidate, (value) => {
        assert.equal(isUserId(value), oracle(value));
      }),
      { numRuns: pureRuns },
    );
  });
});

type Instant = { readonly ms: number } | 'invalid_timestamp' | 'timestamp_out_of_range';

/** Reads RFC 3339 with Date, which knows the calendar: a day that does not exist comes back as another one. */
function oracleInstant(value: string, nowMs: number): Instant {
  const [, day = '', time = '', fraction = '', zone = ''] =
    /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/i.exec(value) ?? [];
  const local = new Date(`${day}T${time}Z`);
  const isReal = !Number.isNaN(local.valueOf()) && local.toISOString().startsWith(`${day}T${time}`);
  const [hours = 0, minutes = 0] = zone.length === 1 ? [] : zone.slice(1).split(':').map(Number);
  if (!isReal || hours > 23 || minutes > 59) return 'invalid_timestamp';
  const offsetMs = (hours * 60 + minutes) * 60_000 * (zone.startsWith('-') ? -1 : 1);
  const ms = local.valueOf() + Number(fraction.slice(1, 4).padEnd(3, '0')) - offsetMs;
  return ms >= 0 && ms <= nowMs + timestampAheadMsMax ? { ms } : 'timestamp_out_of_range';
}

const storedTime = (ms: number) => new Date(ms).toISOString().replace('T', ' ').slice(0, -1);
const digitsOf = (value: number, count: number) => String(value).padStart(count, '0');

describe('timestamp', () => {
  const part = (usual: [number, number], edges: readonly number[], width: number) =>
    fc
      .oneof(
        { weight: 12, arbitrary: fc.integer({ min: usual[0], max: usual[1] }) },
        { weight: 1, arbitrary: fc.constantFrom(...edges) },
      )
      .map((value) => digitsOf(value, width));
  const offset = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom('Z', 'z') },
    {
      weight: 3,
      arbitrary: fc
        .tuple(fc.constantFrom('+', '-'), part([0, 23], [24, 99], 2), part([0, 59], [60, 99], 2))
        .map(([sign, hour, minute]) => `${sign}${hour}:${minute}`),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom('', '+0530', '+05', '+00:00Z', 'UTC', '\u221201:00', ' Z', '+1:00'),
    },
  );
  const fraction = fc.oneof(
    { weight: 2, arbitrary: fc.constant('') },
    {
      weight: 3,
      arbitrary: fc
        .string({ unit: fc.constantFrom(...'0123456789'), minLength: 1, maxLength: 9 })
        .map((d) => `.${d}`),
    },
    { weight: 1, arbitrary: fc.constantFrom('.', ',5', '.0123456789', '.9999999999', '.-1', '.5.5') },
  );
  const written = fc
    .tuple(
      part([1965, 2030], [0, 1, 1899, 1900, 2000, 2038, 2100, 2106, 2300, 9999], 4),
      part([1, 12], [0, 13], 2),
      fc.oneof(part([1, 28], [0, 32], 2), part([28, 31], [30, 31], 2)),
      fc.oneof(
        { weight: 20, arbitrary: fc.constantFrom('T', 't') },
        { weight: 1, arbitrary: fc.constantFrom(' ', '_', '') },
      ),
      part([0, 23], [24, 25], 2),
      part([0, 59], [60], 2),
      part([0, 59], [60, 61], 2),
      fraction,
      offset,
    )
    .map(([year, month, day, t, h, m, s, f, z]) => `${year}-${month}-${day}${t}${h}:${m}:${s}${f}${z}`);
  const edited = fc
    .tuple(
      written,
      fc.nat(32),
      fc.nat(2),
      fc.constantFrom('', ...'0123456789-:TZtz+.,W ', '\n', '\0', '\u0661', '\u2212'),
    )
    .map(
      ([value, position, removed, put]) => value.slice(0, position) + put + value.slice(position + removed),
    );
  const now = fc.integer({ min: Date.UTC(2020), max: Date.UTC(2030) });

  function agree(value: string, nowMs: number): void {
    const expected = oracleInstant(value, nowMs);
    const result = readTimestamp(value, nowMs);
    // The part of a malformed timestamp that was read may also be out of range, so either code is right.
    if (expected === 'invalid_timestamp') assert.ok('refused' in result, value);
    else if (typeof expected === 'string') assert.deepEqual(result, { refused: expected }, value);
    else assert.deepEqual(result, { text: storedTime(expected.ms) }, value);
  }

  test('is accepted exactly when RFC 3339 allows it, as the instant that it names', () => {
    fc.assert(fc.property(written, now, agree), { numRuns: pureRuns * 2 });
  });

  test('is accepted exactly when RFC 3339 allows it, after edits too', () => {
    fc.assert(fc.property(edited, now, agree), { numRuns: pureRuns });
  });

  test('is accepted exactly when RFC 3339 allows it, with any one character of the usual form replaced', () => {
    const usual = '2026-03-01T12:30:00.250Z';
    for (let at = 0; at < usual.length; at += 1) {
      for (const put of ' 0123456789-+:.,TtZz_\n\0\u0661\u2212') {
        agree(usual.slice(0, at) + put + usual.slice(at + 1), Date.UTC(2027));
      }
    }
  });

  test('is accepted to the millisecond from 1970 to one day ahead', () => {
    const nearEdge = fc
      .tuple(now, fc.integer({ min: -3, max: 3 }), fc.boolean(), fc.integer({ min: -1439, max: 1439 }))
      .map(([nowMs, byMs, start, offsetMinutes]) => {
        const ms = (start ? 0 : nowMs + timestampAheadMsMax) + byMs;
        return [withOffset(ms, offsetMinutes), nowMs] as const;
      });
    fc.assert(
      fc.property(nearEdge, ([value, nowMs]) => agree(value, nowMs)),
      { numRuns: pureRuns },
    );
  });

  test('is refused, whatever else is sent', () => {
    fc.assert(fc.property(fc.string({ unit: character }), now, agree), { numRuns: pureRuns });
  });
});

/** An instant as local time with an offset. */
function withOffset(ms: number, offsetMinutes: number): string {
  const local = new Date(ms + offsetMinutes * 60_000).toISOString().slice(0, -1);
  const minutes = Math.abs(offsetMinutes);
  const sign = offsetMinutes < 0 ? '-' : '+';
  return `${local}${sign}${digitsOf(Math.floor(minutes / 60), 2)}:${digitsOf(minutes % 60, 2)}`;
}

type AnyEvent = Record<string, unknown> & { properties?: Record<string, unknown> };

const properties = fc
  .array(
    fc.tuple(
      text(0, lengths.propertyKeyMax).filter((key) => !reservedEventPropertyKeys.has(key)),
      fc.oneof(
        text(0, lengths.propertyValueMax),
        number,
        fc.array(fc.oneof(text(0, 300), number), { maxLength: 8 }),
      ),
    ),
    { maxLength: 8 },
  )
  .map((entries) => Object.fromEntries(entries));

const timestamp = fc
  .tuple(fc.integer({ min: 0, max: Date.now() }), fc.integer({ min: -1439, max: 1439 }))
  .filter(([ms, offsetMinutes]) => ms + offsetMinutes * 60_000 >= 0)
  .map(([ms, offsetMinutes]) => withOffset(ms, offsetMinutes));

const user = fc.oneof(
  text(1, lengths.identityMax).map((identity) => ({ identity })),
  fc.bigInt({ min: 0n, max: 2n ** 53n - 1n }).map((value) => ({ user_id: String(value) })),
);

const validEvent: fc.Arbitrary<AnyEvent> = fc
  .tuple(
    user,
    fc.record(
      {
        event: text(1, lengths.eventMax),
        session_id: text(1, lengths.sessionIdMax),
        properties,
        timestamp,
      },
      { requiredKeys: ['event'] },
    ),
  )
  .map(([who, what]) => ({ ...who, ...what }));

/** JSON with everything except ASCII escaped, and every control character and quote in its longest form. */
const escaped = (json: string) =>
  json.replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

function expectEvent(ledger: Ledger, event: AnyEvent, between: Between): void {
  ledger.expect(
    { event: event.event as string, identity: (event.identity as string | undefined) ?? '' },
    {
      user_id: (event.user_id as string | undefined) ?? null,
      session_id: (event.session_id as string | undefined) ?? '',
      properties: Object.fromEntries(
        Object.entries(event.properties ?? {}).map(([key, value]) => [key, storedValue(value)]),
      ),
      time: event.timestamp === undefined ? between : storedTime(instantOf(event.timestamp as string)),
    },
  );
}

function instantOf(value: string): number {
  const instant = oracleInstant(value, Date.now());
  assert.ok(typeof instant === 'object', value);
  return instant.ms;
}

function storedValue(value: unknown): string {
  if (!Array.isArray(value)) return asText(value as string | number);
  return Array.from(value.map(asText).join('||')).slice(0, lengths.joinedArrayMax).join('');
}

describe('valid events', () => {
  test('are stored as they were sent, in bulk requests', async () => {
    const ledger = openLedger(sluice, await createEnvironment(sluice, ...unlimited));
    await fc.assert(
      fc.asyncProperty(
        fc.array(validEvent, { minLength: 1, maxLength: 60 }),
        fc.boolean(),
        fc.boolean(),
        async (events, escapes, zips) => {
          const plain = JSON.stringify({ app_id: ledger.appId, events });
          const json = escapes ? escaped(plain) : plain;
          const fromMs = Date.now();
          const reply = await track(sluice.baseUrl, {
            body: zips ? gzipSync(json) : json,
            ...(zips ? { headers: { 'content-encoding': 'gzip' } } : {}),
          });
          checkAccepted(reply);
          for (const event of events) expectEvent(ledger, event, { fromMs, toMs: Date.now() });
        },
      ),
      { numRuns: runs(150) },
    );
    await ledger.check();
  });

  test('are stored as they were sent, one by one', async () => {
    const ledger = openLedger(sluice, await createEnvironment(sluice, ...unlimited));
    await fc.assert(
      fc.asyncProperty(validEvent, async (event) => {
        const fromMs = Date.now();
        checkAccepted(await track(sluice.baseUrl, { body: { app_id: ledger.appId, ...event } }));
        expectEvent(ledger, event, { fromMs, toMs: Date.now() });
      }),
      { numRuns: runs(300) },
    );
    await ledger.check();
  });
});
