// Nesting around its bound and far beyond, wherever JSON from outside is read. It is refused before anything recurses, and the
// same process goes on.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bodies, counts } from '../../src/contract/limits.js';
import { parseDocument } from '../../src/parsing/document.js';
import { createEnvironments, createTestAccount, unlimited } from '../harness/accounts.js';
import { deletionPaths, getToken } from '../harness/deletion.js';
import { isAccepted, post as send } from '../harness/ingestion.js';
import fc from '../support/fast-check.js';
import { sharedSluice } from '../support/sluice.js';
import { openLivePage } from '../support/visualizer.js';

const depthMax = counts.documentDepthMax;

const sluice = await sharedSluice();
const [strict = '', lenient = ''] = await createEnvironments(sluice, [
  unlimited,
  [...unlimited, '--validation', 'lenient'],
]);
const token = await getToken(sluice, await createTestAccount(sluice, 'Nobody'));

type Kind = 'arrays' | 'objects' | 'both';

function nested(kind: Kind, depth: number): string {
  const opening = { arrays: '[', objects: '{"a":', both: '[{"a":' }[kind];
  const closing = { arrays: ']', objects: '}', both: '}]' }[kind];
  const pairs = kind === 'both' ? Math.floor(depth / 2) : depth;
  const odd = kind === 'both' && depth % 2 === 1;
  return `${odd ? '[' : ''}${opening.repeat(pairs)}1${closing.repeat(pairs)}${odd ? ']' : ''}`;
}

/**
 * The body has APP in place of the environment and VALUE in place of the value. `at`: how deep that stands. `ignored`: a document that is
 * not too deep is accepted.
 */
type Place = readonly [name: string, path: string, at: number, body: string, ignored?: 'ignored'];

const event = '"event": "Deep", "identity": "deep@example.com"';
const sentAt = '"sent_at": "2026-03-01T12:30:05.000Z"';
const track = '/api/track';
const users = '/api/add_user_properties';
const identify = '/api/v1/identify';
const collect = '/api/collect';
const pairings = '/api/visualizer/pairings';

const places: readonly Place[] = [
  ...[track, users, identify, collect, pairings].map(
    (path): Place => [`as all there is, at ${path}`, path, 0, 'VALUE'],
  ),
  ['in an unknown field of an event', track, 1, `{"app_id": "APP", ${event}, "more": VALUE}`, 'ignored'],
  ['as a property', track, 2, `{"app_id": "APP", ${event}, "properties": {"a": VALUE}}`],
  ['as an element of an array', track, 3, `{"app_id": "APP", ${event}, "properties": {"a": ["x", VALUE]}}`],
  ['as the identity', track, 1, '{"app_id": "APP", "event": "Deep", "identity": VALUE}'],
  ['as the app_id', track, 1, `{"app_id": VALUE, ${event}}`],
  ['as the events', track, 1, '{"app_id": "APP", "events": VALUE}'],
  ['as one of the events', track, 2, `{"app_id": "APP", "events": [{${event}}, VALUE]}`, 'ignored'],
  [
    'in an unknown field of one of the events, behind a lone surrogate',
    track,
    3,
    `{"app_id": "APP", "events": [{${event}, "s": "\\ud800", "more": VALUE}]}`,
  ],
  ['as a user property', users, 2, '{"app_id": "APP", "identity": "deep", "properties": {"a": VALUE}}'],
  ['as one of the users', users, 2, '{"app_id": "APP", "users": [{"identity": "deep"}, VALUE]}', 'ignored'],
  [
    'in an unknown field of an identification',
    identify,
    1,
    '{"app_id": "APP", "user_id": "5", "identity": "deep", "more": VALUE}',
    'ignored',
  ],
  ['as one of the messages', collect, 2, `{"app_id": "APP", ${sentAt}, "messages": [VALUE]}`, 'ignored'],
  [
    'as a property of a message',
    collect,
    4,
    `{"app_id": "APP", ${sentAt}, "messages": [{"type": "event", "id": "deep", "user_id": "5", "event": "Deep", "properties": {"a": VALUE}}]}`,
    'ignored',
  ],
  [
    'as the pairing of a batch',
    collect,
    1,
    `{"app_id": "APP", ${sentAt}, "pairing": VALUE, "messages": [1]}`,
    'ignored',
  ],
  ['as the pairing that is to end', `${pairings}/stop`, 1, '{"app_id": "APP", "pairing": VALUE}'],
];

/** The body of a place with this value, for an environment. */
const filled = (body: string, value: string, appId: string) =>
  body.replace('APP', appId).replace('VALUE', () => value);

const depths = [depthMax - 1, depthMax, depthMax + 1, 1_000, 30_000];

/** Fails if the process has ended, since nothing starts it again. */
async function assertServes(): Promise<void> {
  assert.ok(
    isAccepted(await send(sluice.baseUrl, track, { app_id: strict, event: 'Next', identity: 'next' })),
  );
}

describe('nesting', () => {
  for (const [name, path, at, body, ignored] of places) {
    for (const [environment, appIdOf] of [
      ['strict', () => strict],
      ['lenient', () => lenient],
    ] as const) {
      test(`${name}, ${environment}, is refused from ${depthMax + 1} levels on, and the process lives`, async () => {
        for (const depth of depths) {
          for (const kind of ['arrays', 'objects', 'both'] as const) {
            const text = filled(body, nested(kind, depth - at), appIdOf());
            // A pairing's body is small.
            if (path.startsWith(pairings) && text.length > 4_096) continue;
            const reply = await send(sluice.baseUrl, path, text);
            const what = `${kind} of ${depth}: ${reply.status} ${reply.text.slice(0, 200)}`;
            if (depth > depthMax) {
              assert.equal(`${reply.status} ${reply.code}`, '400 too_deep', what);
            } else {
              assert.ok(reply.status === 200 || (reply.status === 400 && reply.code !== 'too_deep'), what);
              if (ignored) assert.equal(reply.status, 200, what);
            }
          }
        }
        await assertServes();
      });
    }
  }

  test('in a deletion request is refused, instead of answered 503 for ever', async () => {
    const submit = async (text: string) => {
      const reply = await fetch(`${sluice.baseUrl}${deletionPaths.submit}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
        body: text,
      });
      return { status: reply.status, ...((await reply.json()) as { err: { code: string } }).err };
    };
    const user = '{"identity": "nobody"}';
    for (const depth of depths) {
      for (const text of [
        nested('both', depth),
        `{"users": ${nested('arrays', depth - 1)}}`,
        `{"users": [${user}, ${nested('objects', depth - 2)}]}`,
        `{"users": [{"identity": "\\ud800", "more": ${nested('arrays', depth - 3)}}]}`,
        `{"users": [{"user_id": ${nested('objects', depth - 3)}}]}`,
      ]) {
        const { status, code } = await submit(text);
        assert.equal(status, 400);
        assert.equal(code === 'too_deep', depth > depthMax, `${depth} ${code}`);
      }
    }
    await assertServes();
  });

  test('in a request of the administration is refused', async () => {
    for (const depth of depths) {
      for (const text of [`{"name": ${nested('arrays', depth - 1)}}`, nested('objects', depth)]) {
        const reply = await fetch(`${sluice.adminUrl}/admin/v1/accounts`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', authorization: `Bearer ${sluice.adminToken}` },
          body: text,
        });
        const { err } = (await reply.json()) as { err: { code: string } };
        const isTooLarge = text.length > bodies.adminBytesMax;
        const code = isTooLarge ? 'body_too_large' : depth > depthMax ? 'too_deep' : 'not_possible';
        assert.equal(err.code, code);
      }
    }
    await assertServes();
  });

  test('in the first message of a visualizer’s page ends its connection', async () => {
    for (const depth of depths.filter((each) => each <= 1_000)) {
      const hello = `{"token": "x", "code": "K7P-3XM", "more": ${nested('arrays', depth - 1)}}`;
      const page = openLivePage(sluice.adminUrl, hello);
      const refused = await page.heard('refused');
      assert.equal(refused.reason, depth > depthMax ? 'unreadable' : 'wrong_token');
      await page.untilClosed();
    }
    await assertServes();
  });
});

describe('a document', () => {
  const codeOf = (text: string) => {
    const document = parseDocument(Buffer.from(text));
    return 'code' in document ? document.code : undefined;
  };

  test('has its depth counted only outside of texts, whatever the texts end with', () => {
    const deep = nested('arrays', depthMax + 1);
    for (const text of ['"', '\\', '\\"', '"[', '[', '{', '\\\\"', 'ü', '🧀', '\u2028']) {
      const quoted = JSON.stringify(text);
      assert.equal(codeOf(`[${quoted}, ${nested('arrays', depthMax - 1)}]`), undefined, quoted);
      assert.equal(codeOf(`[${quoted}, ${deep}]`), 'too_deep', quoted);
      assert.equal(codeOf(`{${quoted}: ${deep}}`), 'too_deep', quoted);
    }
    assert.equal(codeOf(JSON.stringify([deep, deep])), undefined);
    assert.equal(codeOf(`[${'[{}],'.repeat(200)}1]`), undefined);
  });

  test('that is not JSON is refused as invalid JSON, whatever comes before the nesting', () => {
    const deep = nested('arrays', 1_000_000);
    for (const before of [
      ']'.repeat(1_000_000),
      '}',
      '"',
      '"\\',
      '"\\\\\\"',
      '[}'.repeat(1_000),
      '\\"',
      "'",
    ]) {
      assert.match(codeOf(before + deep) ?? '', /^(invalid_json|too_deep)$/, before.slice(0, 10));
    }
  });

  test('is never deeper than the bound, and never refused as too deep when it is not', () => {
    const piece = fc.constantFrom(
      '[',
      ']',
      '{"a":',
      '}',
      '"',
      '\\',
      ',',
      '1',
      '"a"',
      '"\\""',
      '"\\\\"',
      '[[[[[[[[',
      ']]]]]]]]',
      '"[[[["',
    );
    const text = fc.array(piece, { maxLength: 60 }).map((pieces) => pieces.join(''));
    const balanced = fc
      .tuple(
        fc.integer({ min: 1, max: depthMax + 8 }),
        fc.constantFrom<Kind>('arrays', 'objects', 'both'),
        text,
      )
      .map(([depth, kind, inner]) => nested(kind, depth).replace('1', () => JSON.stringify(inner)));
    let [deep, taken] = [0, 0];
    fc.assert(
      fc.property(fc.oneof(text, balanced), (json) => {
        const depth = depthOf(json);
        const code = codeOf(json);
        if (depth === undefined) return assert.notEqual(code, undefined);
        if (depth > depthMax) deep += 1;
        else taken += 1;
        assert.equal(code, depth > depthMax ? 'too_deep' : undefined);
      }),
      { numRuns: 5_000 },
    );
    assert.ok(deep > 50 && taken > 50, `${deep} ${taken}`);
  });
});

function depthOf(json: string): number | undefined {
  const depthOfValue = (value: unknown): number =>
    typeof value === 'object' && value !== null
      ? 1 + Math.max(0, ...Object.values(value).map(depthOfValue))
      : 0;
  try {
    return depthOfValue(JSON.parse(json));
  } catch {
    return undefined;
  }
}
