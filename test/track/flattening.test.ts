// Nested objects in lenient environments. Every flattened key repeats the keys above it, so a few bytes could become
// millions. What flattening adds to a request is bounded, and no accepted request is too large for a commit.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { bodies, counts, flattened } from '../../src/contract/limits.js';
import { mendEvent } from '../../src/ingest/mend.js';
import { createEnvironments, unlimited } from '../harness/accounts.js';
import { post, untilStored } from '../harness/ingestion.js';
import fc from '../support/fast-check.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
/** Few other files ask this process, so that the memory that it takes is for this file's requests. */
const api = sluice.api[1] ?? assert.fail('no second process');
const [strict = '', lenient = ''] = await createEnvironments(sluice, [
  unlimited,
  [...unlimited, '--validation', 'lenient'],
]);

type Reply = {
  readonly accepted: number;
  readonly rejected: number;
  readonly errors: readonly { index: number; code: string; field: string }[];
};

const inner = Object.fromEntries(
  Array.from({ length: counts.propertiesMax }, (_, index) => [index.toString(36), 1]),
);
/** Properties whose flattened keys are nearly as long as a key may be: 8 kB become 1 MB. */
const growing = (number: number, letter = 'k') => ({
  [`${letter.repeat(1010)}${number.toString(36).padStart(8, '0')}`]: inner,
});
const keyBytes = Object.keys(inner).reduce((sum, key) => sum + 1019 + key.length, 0);

async function postCompressed(path: string, body: object) {
  const memoryMb = (name: 'VmRSS' | 'VmHWM') => {
    const status = readFileSync(`/proc/${api.pid}/status`, 'utf8');
    return Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1024;
  };
  // Resets the peak to what the process has now.
  writeFileSync(`/proc/${api.pid}/clear_refs`, '5');
  const beforeMb = memoryMb('VmRSS');
  const reply = await fetch(`${api.baseUrl}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' },
    body: gzipSync(JSON.stringify(body)),
    signal: AbortSignal.timeout(60_000),
  });
  const text = await reply.text();
  return { status: reply.status, text, moreMb: memoryMb('VmHWM') - beforeMb };
}

describe('keys that flattening makes', () => {
  for (const [path, field, event] of [
    ['/api/track', 'events', { event: 'Flattened' }],
    ['/api/add_user_properties', 'users', {}],
  ] as const) {
    test(`cost ${path} no more than their bound; the records that exceed it are refused alone`, async () => {
      const record = (number: number) => ({
        ...event,
        identity: `flattened ${number}`,
        properties: number % 100 === 99 ? { flat: true } : growing(number),
      });
      const records = Array.from({ length: 1000 }, (_, number) => record(number));
      const { status, text, moreMb } = await postCompressed(path, { app_id: lenient, [field]: records });
      assert.equal(status, 200, text.slice(0, 300));
      const { accepted, errors } = JSON.parse(text) as Reply;
      const fitting = Math.floor(flattened.bulkBytesMax / keyBytes);
      const refused = records.flatMap((_, number) =>
        number < fitting || number % 100 === 99 ? [] : [`${number} too_long properties`],
      );
      assert.deepEqual(
        errors.map(({ index, code, field }) => `${index} ${code} ${field}`),
        refused,
      );
      assert.equal(accepted, fitting + 10);
      assert.ok(moreMb < 200, `${Math.round(moreMb)} MB more`);
      await untilStored(sluice);
      const [row] = await sluice.rows<{ rows: number; keys: number }>(
        `SELECT count()::UInt32 AS rows, sum(length(properties))::UInt32 AS keys FROM ${field === 'users' ? 'user_properties' : 'events'} WHERE app_id = '${lenient}' AND identity LIKE 'flattened %'`,
      );
      assert.deepEqual(row, { rows: fitting + 10, keys: fitting * counts.propertiesMax + 10 });
    });
  }

  test('cost the messages of one request no more than their bound, and never cause endless 503s', async () => {
    const messages = Array.from({ length: 80 }, (_, number) => ({
      type: number % 2 === 0 ? 'event' : 'user_properties',
      ...(number % 2 === 0 ? { event: 'Flattened message' } : {}),
      id: `flattened ${number}`,
      user_id: '5',
      properties: growing(number),
    }));
    const body = { app_id: lenient, sent_at: new Date().toISOString(), messages };
    const { status, text } = await postCompressed('/api/collect', body);
    assert.equal(status, 200, text.slice(0, 300));
    const answers = (JSON.parse(text) as { messages: { status: string; code?: string; field?: string }[] })
      .messages;
    const fitting = Math.floor(flattened.collectBytesMax / keyBytes);
    assert.ok(fitting >= 1);
    assert.deepEqual(
      answers.map(({ status, code, field }) => `${status} ${code} ${field}`),
      messages.map((_, number) =>
        number < fitting ? 'stored undefined undefined' : 'rejected too_long properties',
      ),
    );
  });

  test('may be as long as other keys in a single record, which is refused beyond its bound', async () => {
    for (const [path, event] of [
      ['/api/track', { event: 'Flattened alone' }],
      ['/api/add_user_properties', {}],
    ] as const) {
      const body = (letter: string) => ({
        ...event,
        app_id: lenient,
        identity: 'alone',
        properties: growing(1, letter),
      });
      assert.equal((await post(api.baseUrl, path, body('k'))).text, '{}');
      const reply = await post(api.baseUrl, path, body('ą'));
      assert.equal(`${reply.status} ${reply.code} ${reply.field}`, '400 too_long properties');
    }
  });

  test('are counted by their length in JSON', () => {
    const key = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 8 });
    const objects = fc.dictionary(
      key,
      fc.dictionary(key, fc.oneof(fc.integer(), fc.array(fc.dictionary(key, fc.integer())))),
    );
    fc.assert(
      fc.property(objects, (properties) => {
        const mend = (bytes: number) => {
          const context = {
            note: () => undefined,
            longNumerals: new Set<string>(),
            flattenedBytesLeft: bytes,
          };
          return { mended: mendEvent({ properties }, context), left: context.flattenedBytesLeft };
        };
        const { mended, left } = mend(1e9);
        assert.ok('value' in mended);
        const keys = Object.keys((mended.value as { properties: object }).properties);
        const spent = 1e9 - left;
        const bytes = keys.reduce((sum, key) => sum + Buffer.byteLength(JSON.stringify(key)) - 2, 0);
        // A name that two objects produce counts twice, so more bytes may be spent than the keys have.
        assert.ok(spent >= bytes);
        assert.ok('value' in mend(spent).mended);
        if (spent > 0) assert.ok('code' in mend(spent - 1).mended);
      }),
    );
    const context = { note: () => undefined, longNumerals: new Set<string>(), flattenedBytesLeft: 15 };
    const nested = { properties: { a: { b: 1, '\u0001"é': 1 } } };
    assert.ok('value' in mendEvent(nested, context));
    assert.equal(context.flattenedBytesLeft, 0);
    assert.ok('code' in mendEvent(nested, context));
    assert.ok('value' in mendEvent({ properties: { a: true } }, context));
  });
});

test('a bulk request of numbers that are stored with many more digits is refused, not answered 503 for ever', async () => {
  const list = `[${'1e20,'.repeat(44)}1]`;
  const properties = `{${Array.from({ length: 65 }, (_, index) => `"${index}":${list}`).join()}}`;
  const event = `{"event": "Digits", "identity": "digits", "properties": ${properties}}`;
  const body = `{"app_id": "${strict}", "events": [${Array(1000).fill(event).join()}]}`;
  assert.ok(body.length <= bodies.bulkBytesMax);
  const reply = await post(api.baseUrl, '/api/track', body);
  assert.equal(`${reply.status} ${reply.code} ${reply.field}`, '400 too_long events');
});
