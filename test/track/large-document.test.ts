// Reading a document record by record gives the same as reading it at once, and no step of it takes long.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { counts } from '../../src/contract/limits.js';
import { eventKind } from '../../src/ingest/event.js';
import { ignoredOf } from '../../src/ingest/ignored-fields.js';
import { createLimitKeys } from '../../src/ingest/limit-key.js';
import { type PrepareContext, prepare } from '../../src/ingest/prepare.js';
import { prepareSegment } from '../../src/ingest/segment.js';
import { parseDocument } from '../../src/parsing/document.js';
import { readLargeDocument } from '../../src/parsing/large-document.js';
import { atOnce, type Steps } from '../../src/parsing/steps.js';
import { cpuMs, fastestMs } from '../support/cpu-time.js';
import fc, { runs } from '../support/fast-check.js';
import { noSuppressions } from '../support/shard.js';

const list = { field: 'events', recordsMax: 5 };
const large = (text: string) => atOnce(readLargeDocument(Buffer.from(text), list));
const codeOf = (document: object) => ('code' in document ? document.code : undefined);

const context: PrepareContext = {
  environment: {
    appId: '1',
    accountId: '1',
    lenient: false,
    shard: 0,
    allowedIdentities: new Set(),
    limits: {},
  } as unknown as PrepareContext['environment'],
  limitKeys: createLimitKeys('secret'),
  nowMs: Date.now(),
  suppressions: noSuppressions,
  strictBulk: false,
};

/** Asserts that reading a document record by record gives the same as reading it at once. */
function assertSame(text: string): void {
  const [one, other] = [large(text), parseDocument(Buffer.from(text))];
  assert.equal(codeOf(one), codeOf(other), text);
  if ('code' in one || 'code' in other) return;
  assert.deepEqual(one.value, other.value, text);
  assert.equal(JSON.stringify(one.value), JSON.stringify(other.value));
  assert.equal(one.surrogates, other.surrogates);
  assert.deepEqual(one.longNumerals, other.longNumerals);
}

describe('a large document', () => {
  test('is read as a small one is', () => {
    const big = '12345678901234567890';
    for (const text of [
      '{"events": []}',
      '{"events": [ \t\n\r]}',
      '{"app_id": "1", "events": [{"a": 1}, {"b": [1, 2]} , 3, "x", null], "z": {"events": [1]}}',
      '  {"events": [1]}  ',
      '[{"events": [1]}]',
      '"events"',
      '{"x": "events", "y": [1]}',
      '{"a": {"events": [1, 2]}}',
      '{"events": [1], "events": [2, 3]}',
      '{"events": [1], "events": 5}',
      '{"events": 5, "events": [1]}',
      '{"\\u0065vents": [1]}',
      '{"events": [[1], [[2]], {"events": [3]}]}',
      `{"properties": {"n": ${big}}, "events": [{"properties": {"n": ${big}}}, {"n": ${big}}]}`,
      `{"events": [{"properties": {"l": [${big}, "\\ud800"]}}]}`,
      '{"events": ["🧀", "ü", "\\"", "]", "\\\\"], "ü": 1}',
      '{"__proto__": [1], "events": [{"__proto__": {"a": 1}}]}',
    ]) {
      assertSame(text);
      assert.equal(codeOf(large(text)), undefined, text);
    }
  });

  test('that is not JSON is refused as invalid JSON, wherever the error is', () => {
    for (const text of [
      '',
      '{',
      '{"events": [',
      '{"events": [1',
      '{"events": [1}',
      '{"events": [1,]}',
      '{"events": [,1]}',
      '{"events": [,]}',
      '{"events": [1 2]}',
      '{"events": [\u00a0]}',
      '{"events": [{]}]}',
      '{"events": [{"a": 1]}',
      '{"events": [1]]}',
      '{"events": [1]} {"events": [2]}',
      '{"events" [1]}',
      '{"events": [1], "events": [x]}',
      '{"events": [x], "events": [1]}',
      '{"events": ["a]}',
      '}',
    ]) {
      assert.equal(codeOf(large(text)), 'invalid_json', text);
    }
    assert.equal(codeOf(atOnce(readLargeDocument(Buffer.from([0x22, 0xff, 0x22]), list))), 'invalid_json');
  });

  test('gives the same as a small one, whatever it contains', () => {
    const piece = fc.constantFrom(
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"events"',
      '"a"',
      '1',
      ' ',
      '"\\""',
      '1e400',
      '{"events":[',
    );
    const noise = fc.array(piece, { maxLength: 25 }).map((pieces) => pieces.join(''));
    const valid = fc
      .dictionary(fc.constantFrom('events', 'a', 'b'), fc.array(fc.jsonValue(), { maxLength: 5 }))
      .map((value) => JSON.stringify(value));
    fc.assert(fc.property(fc.oneof(noise, valid), assertSame), { numRuns: runs(5_000) });
  });

  test('has characters of several bytes decoded whole, wherever its chunks end', () => {
    for (const shift of [0, 1, 2, 3]) {
      const text = `{"${'x'.repeat(shift)}": "${'🧀'.repeat(300_000)}é"}`;
      assert.deepEqual((large(text) as { value: unknown }).value, JSON.parse(text));
    }
  });

  test('is read up to one record more than it may have, and is refused for that one', () => {
    const read = (count: number) => {
      const document = large(`{"events": [${Array(count).fill('1').join()}]}`);
      assert.ok('value' in document);
      return (document.value as { events: unknown[] }).events.length;
    };
    assert.deepEqual([4, 5, 6, 7, 100].map(read), [4, 5, 6, 6, 6]);
  });

  test('has bounds on its content, inside and outside of the records', () => {
    const array = (element: string, count: number) => `[${Array(count).fill(element).join()}]`;
    const names = (count: number) => `{${Array.from({ length: count }, (_, i) => `"${i}":1`).join()}}`;
    const bounds: [make: (count: number) => string, max: number, code: string][] = [
      [(count) => array('[]', count - 1), counts.recordContainersMax, 'too_many_values'],
      [(count) => array('1', count + 1), counts.recordElementsMax, 'too_many_values'],
      [names, counts.recordNamesMax, 'too_many_properties'],
      [(count) => array('1e-400', count), counts.recordLongNumeralsMax, 'too_long'],
    ];
    for (const [make, max, code] of bounds) {
      for (const wrap of [
        (text: string) => `{"events": [1, ${text}, ${text.slice(0, 1) === '[' ? '[]' : '{}'}]}`,
        (text: string) => `[${text}]`.slice(1, -1),
      ]) {
        assert.equal(codeOf(large(wrap(make(max)))), undefined, code);
        assert.equal(codeOf(large(wrap(make(max + 1)))), code);
      }
    }
    const record = array('[]', 9_000);
    const whole = (count: number) =>
      atOnce(
        readLargeDocument(Buffer.from(`{"events": ${array(record, count)}}`), {
          field: 'events',
          recordsMax: 1000,
        }),
      );
    assert.equal(codeOf(whole(22)), undefined);
    assert.equal(codeOf(whole(23)), 'too_many_values');
  });

  test('is read in steps of about one record, whatever it contains', () => {
    const many = (count: number, item: (index: number) => string) =>
      Array.from({ length: count }, (_, index) => item(index)).join();
    const event = (properties: string) => `{"event":"e","identity":"i","properties":${properties}}`;
    const records: Record<string, string> = {
      names: event(`{${many(9_900, (index) => `"k${index}":1`)}}`),
      'bad properties': event(`{${many(9_900, (index) => `"k${index}":null`)}}`),
      objects: event(`{"a":[${many(9_900, () => '{}')}]}`),
      'elements and a bad one': event(`{"a":[${many(249_000, () => '1')},null]}`),
      'texts and a bad one': event(`{"a":[${many(249_000, (index) => `"${index % 97}"`)},null]}`),
      'long numbers': event(`{"a":[${many(19_900, () => '1e-400')}],"b":null}`),
      'characters of four bytes': event(`{"a":"${'🧀'.repeat(2 ** 20)}"}`),
      'lone surrogates': event(`{"a":[${many(50_000, () => '"\\ud83d\\ude00"')},"\\ud800"]}`),
    };
    // Measured in readings of the slowest record by JSON.parse, so that slow machines count alike.
    const parseMs = Math.max(...Object.values(records).map((record) => fastestMs(() => JSON.parse(record))));
    for (const [name, record] of Object.entries(records)) {
      const body = Buffer.from(`{"app_id":"1","events":[${Array(5).fill(record).join()}]}`);
      let leastMs = Number.POSITIVE_INFINITY;
      for (let tries = 0; tries < 5 && leastMs >= 4 * parseMs; tries += 1) {
        let longestMs = 0;
        const timed = <T>(steps: Steps<T>): T => {
          for (;;) {
            const from = cpuMs();
            const step = steps.next();
            longestMs = Math.max(longestMs, cpuMs() - from);
            if (step.done === true) return step.value;
          }
        };
        const document = timed(readLargeDocument(body, list));
        assert.ok('value' in document, name);
        assert.equal(timed(prepare(eventKind, document, context)).kind, 'refused', name);
        leastMs = Math.min(leastMs, longestMs);
      }
      assert.ok(leastMs < 4 * parseMs, `${name}: ${leastMs} ms, parsed in ${parseMs} ms`);
    }
  });

  test('is prepared record by record, in every protocol', () => {
    const count = 5;
    const text = (field: string) =>
      `{"app_id":"1","${field}":[${Array(count)
        .fill(`{"type":"track","unknown":"${'x'.repeat(50_000)}"}`)
        .join()}]}`;
    const stepsOf = (steps: Steps<unknown>) => {
      let taken = 0;
      while (steps.next().done !== true) taken += 1;
      return taken;
    };
    const document = (field: string) => {
      const read = atOnce(readLargeDocument(Buffer.from(text(field)), { field, recordsMax: count }));
      assert.ok('value' in read);
      return read;
    };
    assert.ok(stepsOf(prepare(eventKind, document('events'), context)) >= count);
    assert.ok(stepsOf(ignoredOf(eventKind, document('events'))) >= count);
    const received = { ...context, receivedMs: context.nowMs };
    assert.ok(stepsOf(prepareSegment(document('batch'), undefined, received)) >= count);
  });

  test('is read in many small steps', () => {
    const text = `{"events": [${Array(5)
      .fill(`{"a": "${'x'.repeat(2_000_000)}"}`)
      .join()}]}`;
    const reading = readLargeDocument(Buffer.from(text), list);
    let steps = 0;
    while (reading.next().done !== true) steps += 1;
    assert.ok(steps > 5 + text.length / 3_000_000, `${steps}`);
  });
});
