// The limits of the contract over several API processes: how many requests of one user are accepted in any window, the answer
// and the cost of a refusal, and what is counted separately.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { rateLimits } from '../../src/contract/limits.js';
import { rateLimitHeaders } from '../../src/http/endpoints/rate-limit-headers.js';
import { createEnvironments } from '../harness/accounts.js';
import {
  type Answer,
  isAccepted,
  paths,
  post,
  postInTime,
  readUsers,
  untilStored,
} from '../harness/ingestion.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';

const windowMs = 30_000;
const driftMs = 50;
const { app_records, app_bytes } = rateLimits;
const [leastRecords = 0, leastBytes = 0] = [app_records.least, app_bytes.least];

/** The environment with the limits of the contract. */
let contract: string;
/** Another one, for tests that fill the bulk limits of a whole environment. */
let full: string;
/** With bulk_identity=10 and bulk_app=20; one environment for each test that needs it. */
let small: string[];
let withoutTrack: string;
/** Without the bulk limits, and with track=2. */
let withoutBulk: string;
/** With the least limits over all endpoints, and without the other ones of an environment. */
let everywhere: string;
const sluice = await sharedSluice();
const smallLimits = ['--limit', 'bulk_identity=10', '--limit', 'bulk_app=20'];
[contract = '', full = '', withoutTrack = '', withoutBulk = '', everywhere = '', ...small] =
  await createEnvironments(sluice, [
    [],
    [],
    ['--limit', 'track=none'],
    ['--limit', 'bulk_identity=none', '--limit', 'bulk_app=none', '--limit', 'track=2'],
    ['bulk_app=none', 'collect_app=none', `app_records=${leastRecords}`, `app_bytes=${leastBytes}`].flatMap(
      (limit) => ['--limit', limit],
    ),
    ...Array.from({ length: 4 }, () => smallLimits),
  ]);

let sent = 0;
/** Sends to the API processes in turn. */
function send(path: string, body: object): Promise<Answer> {
  sent += 1;
  return postInTime(sluice.api[sent % sluice.api.length]?.baseUrl ?? '', path, body);
}

function track(appId: string, user: object, more: object = {}): Promise<Answer> {
  return send(paths.track, { app_id: appId, event: 'Limited', ...user, ...more });
}

function addProperties(appId: string, identity: string, value = 'x'): Promise<Answer> {
  return send(paths.userProperties, { app_id: appId, identity, properties: { a: value } });
}

async function postCompressed(baseUrl: string, path: string, body: string): Promise<Answer> {
  const reply = await fetch(`${baseUrl}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' },
    body: gzipSync(body),
    signal: AbortSignal.timeout(20_000),
  });
  const text = await reply.text();
  const { err } = JSON.parse(text) as { err?: { code: string } };
  return { status: reply.status, text, headers: reply.headers, ...err };
}

/** Events in one request, one for each user. */
function trackAll(appId: string, users: readonly object[]): Promise<Answer> {
  return send(paths.track, { app_id: appId, events: users.map((user) => ({ event: 'Limited', ...user })) });
}

function addAll(appId: string, identities: readonly string[]): Promise<Answer> {
  const users = identities.map((identity) => ({ identity, properties: { a: 'x' } }));
  return send(paths.userProperties, { app_id: appId, users });
}

function repeat<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

/** This many events of one identity. */
function of(identity: string, count: number): object[] {
  return repeat(count, () => ({ identity }));
}

/** This many events, each of another identity. */
function ofEach(prefix: string, count: number): object[] {
  return repeat(count, (index) => ({ identity: `${prefix}-${index}` }));
}

function assertAccepted(answer: Answer): void {
  assert.ok(isAccepted(answer), `${answer.status} ${answer.text}`);
}

/** Asserts that a request was refused for a limit as the contract says; returns its `Retry-After`. */
function assertLimited(answer: Answer, name: string, max: number, seconds: number): number {
  assert.deepEqual([answer.status, answer.code], [429, 'rate_limited'], answer.text);
  const { err } = JSON.parse(answer.text) as { err: { message: string } };
  assert.ok(err.message !== '');
  const retryAfter = answer.headers.get('retry-after') ?? '';
  assert.match(retryAfter, /^[1-9]\d*$/);
  assert.ok(Number(retryAfter) <= seconds + 1, `Retry-After is ${retryAfter}`);
  // draft-ietf-httpapi-ratelimit-headers: structured fields, the name a string, the rest parameters.
  assert.equal(answer.headers.get('ratelimit-policy'), `"${name}";q=${max};w=${seconds}`);
  const [, limit, remaining, reset] =
    /^"(\w+)";r=(\d+);t=(\d+)$/.exec(answer.headers.get('ratelimit') ?? '') ?? [];
  assert.equal(limit, name);
  assert.ok(Number(remaining) < max);
  assert.equal(reset, retryAfter);
  return Number(retryAfter);
}

function countAccepted(answers: readonly Answer[]): number {
  for (const answer of answers) assert.ok([200, 429].includes(answer.status), answer.text);
  return answers.filter(isAccepted).length;
}

async function countEvents(appId: string, condition: string): Promise<number> {
  await untilStored(sluice);
  const [row] = await sluice.rows<{ n: number }>(
    `SELECT toUInt32(count()) AS n FROM events WHERE app_id = '${appId}' AND ${condition}`,
  );
  return row?.n ?? 0;
}

/**
 * Waits as long as the contract tells a client to, plus the few milliseconds by which the clocks of this process and of Redis may differ.
 */
async function wait(ms: number): Promise<void> {
  const endsAt = performance.now() + ms + driftMs;
  while (performance.now() < endsAt) {
    await new Promise((settle) => setTimeout(settle, endsAt - performance.now()));
  }
}

/** Settles with what a user's requests were answered if all were within one window; a machine that is too slow tries with another user. */
async function burst(send: (identity: string, n: number) => Promise<Answer>) {
  let tries = 0;
  return until(async () => {
    tries += 1;
    const [identity, began] = [`burst ${tries}`, performance.now()];
    const answers = await Promise.all(repeat(200, (n) => send(identity, n)));
    return performance.now() - began < windowMs && { identity, answers };
  }, 'all requests are within one window');
}

// Several run at the same time, each with its own users or environment. Not all do, since a small machine could not commit all their
// bursts in time.
describe('limits', { concurrency: 4 }, () => {
  test('accepts exactly 30 of 200 parallel requests of an identity over two processes', async () => {
    const { identity, answers } = await burst((identity) => track(contract, { identity }));
    assert.equal(countAccepted(answers), 30);
    for (const answer of answers.filter(({ status }) => status === 429))
      assertLimited(answer, 'track', 30, 30);
    assert.equal(await countEvents(contract, `identity = '${identity}'`), 30);
  });

  test('accepts exactly 30 of 200 parallel requests that add properties to a user', async () => {
    const { identity, answers } = await burst((identity, n) => addProperties(contract, identity, `${n}`));
    const accepted = answers.flatMap((answer, n) => (isAccepted(answer) ? [`${n}`] : []));
    assert.equal(accepted.length, 30);
    for (const answer of answers.filter(({ status }) => status === 429)) {
      assertLimited(answer, 'user_properties', 30, 30);
    }
    await untilStored(sluice);
    const stored = await sluice.rows<{ a: string }>(
      `SELECT properties['a'] AS a FROM user_properties WHERE app_id = '${contract}' AND identity = '${identity}'`,
    );
    assert.deepEqual(stored.map(({ a }) => a).sort(), accepted.sort());
  });

  test('counts identities, user_ids, environments and endpoints separately, by their exact bytes', async () => {
    const users = [
      { identity: '7' },
      { user_id: '7' },
      { identity: 'Bob' },
      { identity: 'bob' },
      { identity: 'bob ' },
      { identity: 'é' },
      { identity: 'e\u0301' },
    ];
    const began = performance.now();
    for (const user of users) {
      assert.equal(countAccepted(await Promise.all(repeat(32, () => track(contract, user)))), 30);
    }
    assertAccepted(await track(full, { identity: '7' }));
    assert.equal(countAccepted(await Promise.all(repeat(32, () => addProperties(contract, '7')))), 30);
    assertAccepted(await trackAll(contract, of('7', 40)));
    assertAccepted(
      await addAll(
        contract,
        repeat(40, () => '7'),
      ),
    );
    assertAccepted(await send(paths.identify, { app_id: contract, user_id: '7', identity: 'seven' }));
    const still = [await track(contract, { identity: '7' }), await track(contract, { user_id: '7' })];
    if (performance.now() - began < windowMs) {
      assert.deepEqual(
        still.map(({ status }) => status),
        [429, 429],
        'the limits stay separate after a merge',
      );
    }
  });

  test('does not limit identifications', async () => {
    const answers = await Promise.all(
      repeat(100, (n) =>
        send(paths.identify, { app_id: contract, user_id: String(2000 + n), identity: 'many-devices' }),
      ),
    );
    assert.equal(countAccepted(answers), 100);
  });

  test('counts a repeat as a request, and does not count bad requests', async () => {
    const once = { identity: 'repeater' };
    const bad = await Promise.all(repeat(40, () => track(contract, once, { timestamp: 'now' })));
    assert.ok(bad.every(({ status }) => status === 400));
    const answers = await Promise.all(repeat(40, () => track(contract, once, { idempotency_key: 'again' })));

    assert.equal(countAccepted(answers), 30);
    assert.equal(await countEvents(contract, `identity = 'repeater'`), 1);
    const other = await track(contract, { identity: 'other' }, { idempotency_key: 'again' });
    assertAccepted(other);
  });

  test('neither new names nor another endpoint evade the limits over all endpoints of an environment', async () => {
    // A stranger could send compressed requests of 7 kB that store a megabyte each, always for new users.
    const value = '\u{1F600}'.repeat(240);
    const properties = Object.fromEntries(repeat(1000, (n) => [`k${n}`, value]));
    const large = (n: number) => {
      const body = JSON.stringify({ app_id: everywhere, identity: `large-${n}`, properties });
      return postCompressed(sluice.api[n % 2]?.baseUrl ?? '', paths.userProperties, body);
    };
    const answers: Answer[] = [];
    const isRefused = ({ status }: Answer) => status === 429;
    const flood = async () => {
      while (!answers.some(isRefused) && answers.length < 200) answers.push(await large(answers.length));
    };
    await Promise.all(repeat(6, flood));
    const refused = answers.find(isRefused) as Answer;
    assertLimited(refused, 'app_bytes', leastBytes, 10);
    assert.match(refused.text, /administrator/, 'the refusal says what to do');
    await untilStored(sluice);
    const [row] = await sluice.rows<{ bytes: number }>(
      `SELECT toUInt32(sum(length(toString(properties)))) AS bytes FROM user_properties WHERE app_id = '${everywhere}'
        AND received_at > (SELECT max(received_at) - toIntervalSecond(9) FROM user_properties WHERE app_id = '${everywhere}')`,
    );
    assert.ok(Number(row?.bytes) <= leastBytes, `${row?.bytes} bytes in 9 s`);

    const events = (prefix: string, count: number) => trackAll(everywhere, ofEach(prefix, count));
    assertAccepted(await events('first', 1000));
    assertAccepted(
      await addAll(
        everywhere,
        repeat(900, (n) => `second-${n}`),
      ),
    );
    const all = [
      ...(await Promise.all(repeat(200, (n) => track(everywhere, { identity: `single-${n}` })))),
      ...(await Promise.all(
        repeat(50, (n) => send(paths.identify, { app_id: everywhere, user_id: `${n}`, identity: `i-${n}` })),
      )),
    ];
    const before = answers.filter(isAccepted).length;
    assert.equal(countAccepted(all), leastRecords - 1900 - before, 'every record counts, whatever its kind');
    for (const answer of all.filter(({ status }) => status === 429))
      assertLimited(answer, 'app_records', leastRecords, 60);
    const messages = [
      { type: 'event', id: 'of-a-page', event: 'Opened', user_id: '9', time: '2026-01-01T00:00:00Z' },
    ];
    const sentAt = '2026-01-01T00:00:00Z';
    const page = await send('/api/collect', { app_id: everywhere, sent_at: sentAt, messages });
    assert.match(page.text, /"limited"/);
    const batch = [{ type: 'track', userId: 'of-a-library', event: 'Opened', messageId: 'one' }];
    assertLimited(await send('/v1/batch', { writeKey: everywhere, batch }), 'app_records', leastRecords, 60);
    assertAccepted(await track(full, { identity: 'neighbour' }));
  });

  test('switches off only one limit with none, and changes it with a number', async () => {
    const answers = await Promise.all(repeat(100, () => track(withoutTrack, { identity: 'free' })));
    assert.equal(countAccepted(answers), 100);
    const others = await Promise.all(repeat(40, () => addProperties(withoutTrack, 'free')));
    assert.equal(countAccepted(others), 30);
    for (let n = 1; n <= 3; n += 1) assertAccepted(await trackAll(withoutBulk, of('pair', 1000)));
    const few = await Promise.all(repeat(20, () => track(withoutBulk, { identity: 'pair' })));
    assert.equal(countAccepted(few), 2);
    assertLimited(await track(withoutBulk, { identity: 'pair' }), 'track', 2, 30);
    assert.equal(countAccepted(await Promise.all(repeat(40, () => addProperties(withoutBulk, 'pair')))), 30);
  });

  test('accepts 1000 events per minute of an identity, and refuses as a whole a request that does not fit', async () => {
    assertAccepted(await trackAll(contract, of('bulk', 600)));
    const refused = await trackAll(contract, [...of('bulk', 401), { identity: 'bystander' }]);
    assertLimited(refused, 'bulk_identity', 1000, 60);
    assertAccepted(await trackAll(contract, of('bulk', 400)));
    assertLimited(await trackAll(contract, of('bulk', 1)), 'bulk_identity', 1000, 60);
    assertAccepted(await trackAll(contract, of('another', 1000)));

    assert.equal(await countEvents(contract, `identity = 'bulk'`), 1000);
    assert.equal(await countEvents(contract, `identity = 'bystander'`), 0);
  });

  test('tells a bulk request to wait until enough of its limit is free', async () => {
    const beganMs = performance.now();
    assertAccepted(await trackAll(contract, of('waiting', 600)));
    const firstMs = performance.now();
    await wait(4_000);
    const secondMs = performance.now();
    assertAccepted(await trackAll(contract, of('waiting', 400)));
    const askedMs = performance.now();
    const untilFirst = assertLimited(await trackAll(contract, of('waiting', 600)), 'bulk_identity', 1000, 60);
    const answeredMs = performance.now();
    const untilBoth = assertLimited(await trackAll(contract, of('waiting', 601)), 'bulk_identity', 1000, 60);
    const endedMs = performance.now();
    assert.ok(untilFirst >= 60 - (answeredMs - beganMs) / 1000 - 1, `Retry-After of ${untilFirst} s`);
    // Both are rounded up, and acceptances within a second may be counted as one.
    const apart = (secondMs - firstMs - (endedMs - askedMs)) / 1000 - 2;
    assert.ok(untilBoth - untilFirst >= apart, `Retry-After of ${untilFirst} s and ${untilBoth} s`);
    const limited = { name: 'bulk_identity', limit: rateLimits.bulk_identity } as const;
    assert.deepEqual(rateLimitHeaders(limited, 1_001)[0], ['Retry-After', '2']);
  });

  test('accepts 15,000 events per minute of an environment over two processes, of any users', async () => {
    const answers: Answer[] = [];
    // One for each process at a time, since a busy machine could not commit all of them in time.
    for (const pair of repeat(9, String))
      answers.push(
        ...(await Promise.all(repeat(2, (n) => trackAll(full, ofEach(`full-${pair}-${n}`, 1000))))),
      );
    assert.equal(countAccepted(answers), 15);
    for (const answer of answers.filter(({ status }) => status === 429)) {
      assertLimited(answer, 'bulk_app', 15_000, 60);
    }
    assertLimited(await trackAll(full, of('one', 1)), 'bulk_app', 15_000, 60);
    assertAccepted(await track(full, { identity: 'one' }));
    assertAccepted(await addAll(full, ['one']));
    assert.equal(await countEvents(full, `startsWith(identity, 'full-')`), 15_000);
    assert.equal(await countEvents(full, `identity = 'one'`), 1);
  });

  test('counts bulk events and bulk user properties separately, each with both limits', async () => {
    const appId = small[0] ?? '';
    assertAccepted(await trackAll(appId, [...of('ada', 10), ...ofEach('more', 10)]));
    assertAccepted(
      await addAll(
        appId,
        repeat(10, () => 'ada'),
      ),
    );
    assertLimited(await addAll(appId, ['ada']), 'bulk_identity', 10, 60);
    assertAccepted(
      await addAll(
        appId,
        repeat(10, (n) => `more-${n}`),
      ),
    );
    assertLimited(await addAll(appId, ['bob']), 'bulk_app', 20, 60);
    assertLimited(await trackAll(appId, of('bob', 1)), 'bulk_app', 20, 60);
    assertAccepted(await track(appId, { identity: 'ada' }));
    assertAccepted(await addProperties(appId, 'ada'));
  });

  test('refuses with 400 a request that could never fit, and neither stores nor counts any of it', async () => {
    const appId = small[1] ?? '';
    const never = await Promise.all([
      trackAll(appId, [...of('ada', 11), { identity: 'bob' }]),
      trackAll(appId, ofEach('crowd', 21)),
      addAll(
        appId,
        repeat(11, () => 'ada'),
      ),
      addAll(
        appId,
        repeat(21, (n) => `crowd-${n}`),
      ),
    ]);
    assert.deepEqual(
      never.map(({ status, code }) => [status, code]),
      never.map(() => [400, 'too_large_for_limit']),
    );
    assert.equal(await countEvents(appId, '1'), 0);
    assert.deepEqual(await readUsers(sluice, appId), []);
    assertAccepted(await trackAll(appId, [...of('ada', 10), ...ofEach('crowd', 10)]));
  });

  test('counts repeats, but no bad elements', async () => {
    const appId = small[2] ?? '';
    const bad = repeat(15, () => ({ identity: 'ada', timestamp: 'now' }));
    const mixed = await trackAll(appId, [...of('ada', 4), ...bad]);
    assert.equal(mixed.status, 200, mixed.text);
    const keyed = repeat(3, (n) => ({ identity: 'ada', idempotency_key: `key ${n}` }));
    assertAccepted(await trackAll(appId, keyed));
    assertAccepted(await trackAll(appId, keyed));
    assertLimited(await trackAll(appId, of('ada', 1)), 'bulk_identity', 10, 60);
    assertAccepted(await trackAll(appId, ofEach('rest', 10)));
    assertLimited(await trackAll(appId, of('bob', 1)), 'bulk_app', 20, 60);
    assert.equal(await countEvents(appId, `identity = 'ada'`), 7);
  });

  test('counts nothing of a request that is refused as a whole for a bad element', async () => {
    const appId = small[3] ?? '';
    const events = [...of('ada', 10), { identity: 'ada', timestamp: 'now' }];
    for (let n = 1; n <= 3; n += 1) {
      const refused = await post(sluice.baseUrl, `${paths.track}?strict=1`, {
        app_id: appId,
        events: events.map((event) => ({ event: 'Limited', ...event })),
      });
      assert.equal(refused.status, 400);
    }
    assertAccepted(await trackAll(appId, of('ada', 10)));
  });
});
