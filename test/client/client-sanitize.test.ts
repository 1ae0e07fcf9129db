// What the client library accepts as names, identities and properties, and what it drops with a warning.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { counts } from '../../src/contract/limits.js';
import { decodeProperties, encodeProperties } from '../../src/libraries/client/core/event-properties.js';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import {
  autocaptureRules,
  checkEventName,
  checkProperties,
  eventRules,
  mergeProperties,
  userRules,
} from '../../src/libraries/client/core/sanitize.js';
import {
  cutToCodePoints,
  hasLoneSurrogate,
  isLongerThan,
  utf8Bytes,
} from '../../src/libraries/client/core/text.js';
import fc from '../support/fast-check.js';

const runs = { numRuns: 1000 };

/** Texts around the bounds, of one to four bytes a character, whole and broken. */
const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc
    .tuple(fc.constantFrom('a', 'é', '€', '😀', '"', '\u2028'), fc.integer({ min: 0, max: 1100 }))
    .map(([character, length]) => character.repeat(length)),
  fc
    .tuple(
      fc.constantFrom('a', '😀'),
      fc.constantFrom(254, 255, 256, 1022, 1023, 1024),
      fc.constantFrom('', '\ud83d', '\ude00'),
    )
    .map(([character, length, end]) => character.repeat(length) + end),
);

function warningsOf<T>(call: (warn: (line: string) => void) => T): { result: T; warnings: string[] } {
  const warnings: string[] = [];
  return { result: call((line) => warnings.push(line)), warnings };
}

test('lengths are counted as code points, and bytes as UTF-8', () => {
  fc.assert(
    fc.property(anyText, fc.integer({ min: 0, max: 1100 }), (text, max) => {
      assert.equal(isLongerThan(text, max), [...text].length > max);
      assert.equal(cutToCodePoints(text, max), [...text].slice(0, max).join(''));
      assert.equal(utf8Bytes(text), Buffer.byteLength(text));
      assert.equal(hasLoneSurrogate(text), !text.isWellFormed());
    }),
    runs,
  );
});

test('an event has a name of 1 to 255 whole characters, or is dropped with a warning', () => {
  fc.assert(
    fc.property(fc.oneof(anyText, fc.anything()), (name) => {
      const { result, warnings } = warningsOf((warn) => checkEventName(name, warn));
      const good = typeof name === 'string' && name !== '' && [...name].length <= 255 && name.isWellFormed();
      assert.equal(result, good ? name : undefined);
      assert.equal(warnings.length, good ? 0 : 1);
    }),
    runs,
  );
});

const anyValue = fc.oneof(
  anyText,
  fc.double(),
  fc.boolean(),
  fc.constantFrom(null, undefined, 5n, Symbol('s'), [], {}, new Date(), () => 1),
);
const anyKey = fc.oneof(
  anyText,
  fc.constantFrom('user_id', 'session_id', 'screen_name', '__proto__', 'constructor', 'toString', ''),
);

/** An object with these properties of its own, whatever their keys. */
function objectOf(pairs: readonly (readonly [string, unknown])[]): object {
  return Object.fromEntries(pairs);
}

test('properties that the contract accepts are kept, and each other one causes a warning', () => {
  const rulesets = [
    { rules: eventRules, reserved: ['user_id', 'session_id', 'screen_name'], valueMax: 1023 },
    { rules: userRules, reserved: ['user_id'], valueMax: 255 },
  ];
  fc.assert(
    fc.property(
      fc.constantFrom(...rulesets),
      fc.array(fc.tuple(anyKey, anyValue), { maxLength: 8 }),
      (set, pairs) => {
        const input = objectOf(pairs);
        const given = Object.entries(input).filter(([, value]) => value !== undefined && value !== null);
        const expected = given.flatMap(([key, value]) => {
          if ([...key].length > 1023 || !key.isWellFormed() || set.reserved.includes(key)) return [];
          const text = typeof value === 'boolean' ? String(value) : value;
          if (typeof text === 'number') return Number.isFinite(text) ? [[key, text]] : [];
          const fits = typeof text === 'string' && [...text].length <= set.valueMax && text.isWellFormed();
          return fits ? [[key, text]] : [];
        });
        const { result, warnings } = warningsOf((warn) => checkProperties(input, set.rules, warn));
        assert.deepEqual(Object.entries(result), expected);
        assert.equal(warnings.length, given.length - expected.length);
      },
    ),
    runs,
  );
});

test('lists of values become the text that is stored, and absent values are skipped without a warning', () => {
  const input = {
    list: ['a', 5, true],
    empty: [],
    mixed: ['a', null],
    long: ['x'.repeat(600), 'y'.repeat(600)],
    yes: true,
    none: null,
    absent: undefined,
  };
  const { result, warnings } = warningsOf((warn) => checkProperties(input, eventRules, warn));
  const long = `${'x'.repeat(600)}||${'y'.repeat(421)}`;
  assert.deepEqual(result, { list: 'a||5||true', long, yes: 'true' });
  assert.equal(warnings.length, 2);
});

test('anything without properties of its own is refused with a warning, and no argument makes it throw', () => {
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  const refused: Record<string, unknown> = {
    'a revoked proxy': revoked.proxy,
    'a proxy that throws': new Proxy({}, { ownKeys: () => assert.fail('never shown') }),
    'a map': new Map([['a', 1]]),
    'a set': new Set(['a']),
    'a date': new Date(),
    'search parameters': new URLSearchParams('a=1'),
    'a list': ['a'],
    'a tag that throws': Object.defineProperty({}, Symbol.toStringTag, { get: () => assert.fail('never') }),
    text: 'abc',
    'a function': () => 1,
    'a number': 5,
    'a symbol': Symbol('s'),
  };
  for (const [name, input] of Object.entries(refused)) {
    const { result, warnings } = warningsOf((warn) => checkProperties(input, eventRules, warn));
    assert.deepEqual(result, {}, name);
    assert.deepEqual(warnings, ['the properties are dropped: they are not a readable object.'], name);
  }
  for (const input of [undefined, null, {}, Object.create(null), new (class Empty {})()]) {
    const { result, warnings } = warningsOf((warn) => checkProperties(input, eventRules, warn));
    assert.deepEqual([result, warnings], [{}, []]);
  }
});

test('no method of a value is called, and none of its properties is read twice', () => {
  const called: string[] = [];
  const trap = (name: string) => () => called.push(name);
  let reads = 0;
  const input = {
    toJSON: trap('toJSON'),
    date: { toJSON: trap('toJSON'), toString: trap('toString'), valueOf: trap('valueOf') },
    get changing() {
      reads += 1;
      return reads === 1 ? 'good' : {};
    },
  };
  const { result, warnings } = warningsOf((warn) => checkProperties(input, eventRules, warn));
  assert.deepEqual([result, called, warnings.length], [{ changing: 'good' }, [], 2]);
});

test('values that the library itself records are cut instead, and reserved keys are allowed to it', () => {
  const { result, warnings } = warningsOf((warn) =>
    checkProperties({ screen_name: '😀'.repeat(1030), path: '/' }, autocaptureRules, warn),
  );
  assert.deepEqual(result, { screen_name: '😀'.repeat(1023), path: '/' });
  assert.deepEqual(warnings, []);
});

test('a thousand properties are accepted, and not one more', () => {
  for (const count of [counts.propertiesMax - 1, counts.propertiesMax, counts.propertiesMax + 1]) {
    const input = objectOf(Array.from({ length: count }, (_, i) => [`k${i}`, i]));
    const { result, warnings } = warningsOf((warn) => checkProperties(input, eventRules, warn));
    assert.equal(Object.keys(result).length, Math.min(count, counts.propertiesMax));
    assert.equal(warnings.length, Math.max(0, count - counts.propertiesMax));
  }
});

test('the library reads at most the properties that it accepts or warns about, and warns once about the rest of 100,000', () => {
  for (const [value, read] of [
    ['text', counts.propertiesMax],
    [{}, clientLimits.propertiesDroppedMax],
  ] as const) {
    let reads = 0;
    const input = new Proxy(objectOf(Array.from({ length: 100_000 }, (_, i) => [`k${i}`, value])), {
      get: (target, key) => {
        reads++;
        return Reflect.get(target, key);
      },
    });
    const { warnings } = warningsOf((warn) => checkProperties(input, eventRules, warn));
    assert.equal(reads, read);
    assert.equal(warnings.length, value === 'text' ? 1 : clientLimits.propertiesDroppedMax + 1);
    assert.match(warnings.at(-1) ?? '', /properties are dropped: there are too many/);
  }
  const { warnings } = warningsOf((warn) =>
    checkProperties(
      Array.from({ length: 100_000 }, () => 1),
      eventRules,
      warn,
    ),
  );
  assert.equal(warnings.length, 1);
});

test('properties of one call have a limit in bytes of JSON', () => {
  const value = '\u0001'.repeat(1000);
  const input = objectOf(Array.from({ length: 100 }, (_, i) => [`k${i}`, value]));
  const { result, warnings } = warningsOf((warn) => checkProperties(input, eventRules, warn));
  const bytes = Buffer.byteLength(JSON.stringify(result));
  assert.ok(bytes <= clientLimits.propertiesBytesMax && bytes > clientLimits.propertiesBytesMax - 6100);
  assert.equal(warnings.length, 100 - Object.keys(result).length);
});

test('an event’s own properties have priority over global ones, which fill up to a thousand', () => {
  const own = objectOf(Array.from({ length: 600 }, (_, i) => [`k${i}`, 'own'])) as Record<string, string>;
  const global = objectOf(Array.from({ length: 600 }, (_, i) => [`k${i + 300}`, 'global'])) as Record<
    string,
    string
  >;
  const { result, warnings } = warningsOf((warn) => mergeProperties(global, own, warn));
  assert.equal(Object.keys(result).length, 900);
  assert.equal(warnings.length, 0);
  assert.equal(result.k599, 'own');
  assert.equal(result.k600, 'global');
  const more = objectOf(Array.from({ length: 600 }, (_, i) => [`m${i}`, 'global'])) as Record<string, string>;
  const full = warningsOf((warn) => mergeProperties(more, own, warn));
  assert.equal(Object.keys(full.result).length, 1000);
  assert.deepEqual(full.warnings, ['200 properties are dropped: there are too many.']);
});

test('global event properties are read from their text as they were, and the text fits into a cookie', () => {
  const properties = fc.dictionary(
    fc.oneof(anyKey, fc.constantFrom('=', ':', '&', ';', '%', ' a ')),
    fc.oneof(anyText, fc.double({ noNaN: true, noDefaultInfinity: true })),
    { maxKeys: 5 },
  );
  fc.assert(
    fc.property(properties, (input) => {
      const checked = checkProperties(input, eventRules, () => {});
      const text = encodeProperties(checked);
      assert.match(text, /^[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*$/, 'RFC 6265, cookie-octet');
      const back = decodeProperties(text);
      assert.deepEqual(
        Object.entries(back),
        Object.entries(checked).map(([key, value]) => [key, value === 0 ? 0 : value]),
      );
    }),
    runs,
  );
});

test('a damaged text is read without harm', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      for (const value of Object.values(decodeProperties(text))) assert.ok(typeof value !== 'object');
    }),
    runs,
  );
});
