// Idempotency keys over several API processes: each key of an environment has one event, the first accepted one. Also which
// requests claim no key, outages in between, and the event_id that is made from the key.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createEnvironments } from '../harness/accounts.js';
import { collect, event } from '../harness/collect.js';
import { forgetKeys } from '../harness/forgotten-keys.js';
import { type Answer, isAccepted, paths, post, untilStored } from '../harness/ingestion.js';
import { withRedis } from '../harness/redis-client.js';
import { runProgram } from '../harness/sluice.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

// A backlog that a test can fill.
const sluice = await ownSluice({ apiProcesses: 2, env: { BACKLOG_BYTES_MAX: String(1024 * 1024) } });
/** `flooded` is for the outage, which needs many events. */
const [appId = '', other = '', flooded = ''] = await createEnvironments(sluice, [[], [], []]);

let sent = 0;
/** Sends to the API processes in turn. */
function send(body: object): Promise<Answer> {
  sent += 1;
  return post(sluice.api[sent % sluice.api.length]?.baseUrl ?? '', paths.track, body);
}

type Event = {
  readonly event: unknown;
  readonly identity?: unknown;
  readonly user_id?: string;
  readonly session_id?: string;
  readonly timestamp?: unknown;
  readonly properties?: object;
  readonly idempotency_key?: unknown;
};

const track = (event: Event, environment = appId) => send({ app_id: environment, ...event });

const trackAll = (events: readonly Event[], environment = appId) => send({ app_id: environment, events });

/** Sends what has keys until the answer is not 503, which a busy machine may cause. */
const repeated = (send: () => Promise<Answer>): Promise<Answer> =>
  until(
    async () => {
      const answer = await send();
      return answer.status !== 503 && answer;
    },
    { what: 'the service has time', everyMs: 200 },
  );

function assertAccepted(answer: Answer): void {
  assert.ok(isAccepted(answer), `${answer.status} ${answer.text}`);
}

type Stored = {
  readonly event: string;
  readonly event_id: string;
  readonly identity: string;
  readonly user_id: string | null;
  readonly session_id: string;
  readonly time: string;
  readonly properties: Readonly<Record<string, string>>;
};

/** The stored events whose names begin with a prefix, by name and identity. */
async function stored(prefix: string, environment = appId): Promise<Stored[]> {
  await untilStored(sluice);
  return sluice.rows<Stored>(`SELECT event, toString(event_id) AS event_id, identity, toString(user_id) AS user_id,
      session_id, toString(time) AS time, properties
    FROM events WHERE app_id = '${environment}' AND startsWith(event, '${prefix}') ORDER BY event, identity`);
}

const namesOf = (events: readonly Stored[]) => events.map(({ event }) => event);

function repeat<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

test('counts repeats with other content, so that a key taken by a stranger is noticed', async () => {
  const [mine = ''] = await createEnvironments(sluice, [[]]);
  const counted = async () =>
    ((await sluice.admin('environments', 'stats', mine)) as { differing_repeats: number }).differing_repeats;
  const order = {
    event: 'Order',
    identity: 'ada',
    properties: { amount: 12.5 },
    idempotency_key: 'order-5001',
  };
  const message = event({ id: 'message-1', user_id: '5', time: '2026-03-01T12:30:00Z' });
  const request = (sent_at: string, fields: object = {}) => ({
    app_id: mine,
    sent_at,
    messages: [{ ...message, ...fields }],
  });
  const collectOf = async (body: object) => assert.equal((await collect(sluice.baseUrl, body)).status, 200);
  const bought = { type: 'track', messageId: 'message-2', userId: 'ada', event: 'Bought' };
  const segmentOf = async (batch: readonly object[]) =>
    assert.equal((await post(sluice.baseUrl, '/v1/batch', { writeKey: mine, batch })).status, 200);
  assertAccepted(await track(order, mine));
  await collectOf(request('2026-03-01T12:30:01Z'));
  await segmentOf([bought, bought]);

  // The same content again, written differently and at other times.
  const { properties, ...rest } = order;
  const text = JSON.stringify({ app_id: mine, ...order });
  for (const body of [text, text.replaceAll(':', ' : '), text.replace('ada', '\\u0061da')]) {
    assertAccepted(await post(sluice.baseUrl, paths.track, body));
  }
  assertAccepted(await track({ properties, ...rest }, mine));
  assertAccepted(await trackAll([order, order], mine));
  for (const timestamp of ['2026-03-01T12:30:00.250Z', '2026-03-01T12:30:00+01:00', undefined])
    assertAccepted(await track({ ...order, timestamp }, mine));
  for (const sentAt of ['2026-03-01T12:30:09Z', '2026-03-02T00:00:00Z']) await collectOf(request(sentAt));

  // Other content under claimed keys: 50 records, of which one in 255 goes unnoticed.
  const others = repeat(10, (n) => ({ ...order, properties: { amount: n } }));
  for (const other of others) assertAccepted(await track(other, mine));
  assertAccepted(await trackAll(others, mine));
  for (let n = 0; n < 10; n += 1) await collectOf(request('2026-03-01T12:30:01Z', { event: `Other ${n}` }));
  const fromPage = repeat(10, (n) => event({ id: 'order-5001', event: `Page ${n}` }));
  await collectOf({ ...request('2026-03-01T12:30:01Z'), messages: fromPage });
  await segmentOf(repeat(10, (n) => ({ ...bought, event: `Bought ${n}` })));
  await until(async () => (await counted()) >= 47, 'they are counted');
  assert.ok((await counted()) <= 50, `${await counted()}: equal repeats are not counted`);
  await untilStored(sluice);
  const kept = await sluice.rows(`SELECT event FROM events WHERE app_id = '${mine}' ORDER BY event`);
  assert.deepEqual(kept, [{ event: 'Bought' }, { event: 'Opened' }, { event: 'Order' }]);
});

test('keeps the first event of a key whatever its repeats contain', async () => {
  const first = {
    event: 'first',
    identity: 'ada',
    session_id: 'session 1',
    timestamp: '2026-03-01T12:30:00.250+01:00',
    properties: { amount: 12.5 },
    idempotency_key: 'kept',
  };
  assertAccepted(await track(first));
  const repeats: Event[] = [
    { ...first, event: 'first, but another' },
    { ...first, identity: 'bob' },
    { event: 'first', user_id: '7', idempotency_key: 'kept' },
    { ...first, timestamp: '2020-03-01T12:30:00Z' },
    { ...first, session_id: 'session 2' },
    { ...first, properties: { amount: 99, extra: 'x' } },
    { event: 'first', identity: 'ada', idempotency_key: 'kept' },
  ];
  for (const repeated of repeats) assertAccepted(await track(repeated));
  assertAccepted(await trackAll(repeats));

  const events = await stored('first');
  assert.deepEqual(
    events.map(({ event_id, ...rest }) => rest),
    [
      {
        event: 'first',
        identity: 'ada',
        user_id: null,
        session_id: 'session 1',
        time: '2026-03-01 11:30:00.250',
        properties: { amount: '12.5' },
      },
    ],
  );
});

test('accepts the first of two equal keys in one bulk request, and all other events of the request', async () => {
  const events = repeat(30, (n) => ({
    event: `twice ${String(n).padStart(2, '0')}`,
    identity: `user ${n}`,
    ...(n % 3 === 2 ? {} : { idempotency_key: `twice ${n % 3}` }),
  }));
  assertAccepted(await trackAll(events));
  assertAccepted(await trackAll(events.filter(({ idempotency_key }) => idempotency_key !== undefined)));
  assert.deepEqual(namesOf(await stored('twice')), [
    'twice 00',
    'twice 01',
    ...repeat(10, (n) => `twice ${String(3 * n + 2).padStart(2, '0')}`),
  ]);
});

test('stores one event for a key that arrives 100 times at once over two processes', async () => {
  const answers = await Promise.all(
    repeat(100, (n) => {
      const event = { event: `race ${n}`, identity: `racer ${n}`, idempotency_key: 'race' };
      return repeated(() => (n % 4 === 0 ? trackAll([event, event]) : track(event)));
    }),
  );
  assert.ok(answers.every(isAccepted));
  const events = await stored('race');
  assert.equal(events.length, 1, namesOf(events).join(', '));
});

test('stores one event in each of two environments that use equal keys', async () => {
  assertAccepted(await track({ event: 'elsewhere', identity: 'ada', idempotency_key: 'elsewhere' }));
  assertAccepted(await track({ event: 'elsewhere', identity: 'ada', idempotency_key: 'elsewhere' }, other));
  const [here] = await stored('elsewhere');
  const [there] = await stored('elsewhere', other);
  assert.ok(here && there);
  assert.notEqual(here.event_id, there.event_id);
});

test('accepts keys of 1 to 255 code points, and compares them byte for byte', async () => {
  const keys = [
    ...[
      'x',
      'k'.repeat(255),
      `${'k'.repeat(254)}K`,
      '🔑'.repeat(255),
      '0',
      '1',
      '123',
      'a:b',
      'a:b:c',
      'e-0',
      'null',
    ],
    ...[
      'key',
      'Key',
      'key ',
      ' key',
      'é',
      'e\u0301',
      'a\u0000b',
      'a\u0000',
      '__proto__',
      '\n',
      "'",
      '{x:String}',
    ],
  ];
  const event = (n: number) => ({ event: `key ${String(n).padStart(2, '0')}`, identity: `keyed ${n}` });
  const answers = await Promise.all(
    keys.map((idempotency_key, n) => repeated(() => track({ ...event(n), idempotency_key }))),
  );
  const again = await Promise.all(
    keys.map((idempotency_key, n) =>
      repeated(() => track({ event: 'key again', identity: `again ${n}`, idempotency_key })),
    ),
  );

  for (const answer of [...answers, ...again]) assertAccepted(answer);
  assert.deepEqual(
    namesOf(await stored('key ')),
    keys.map((_, n) => event(n).event),
  );
});

test('reserves no key for a request that is refused as bad', async () => {
  const bad: Event[] = [
    { event: '', identity: 'ada' },
    { event: 'bad', identity: 'ada', timestamp: 'now' },
    { event: 'bad', identity: 'ada', properties: { a: true } },
    { event: 'bad' },
    { event: 'bad', identity: '' },
  ];
  for (const [n, event] of bad.entries()) {
    assert.equal((await track({ ...event, idempotency_key: `bad ${n}` })).status, 400);
    assert.equal((await track({ ...event, idempotency_key: `bad ${n}` }, '0000000001')).status, 400);
    assertAccepted(await track({ event: `bad ${n}, mended`, identity: 'bad', idempotency_key: `bad ${n}` }));
  }
  assert.deepEqual(
    namesOf(await stored('bad')),
    bad.map((_, n) => `bad ${n}, mended`),
  );
});

test('reserves no key for a bad element', async () => {
  const mixed = await trackAll([
    { event: 7, identity: 'ada', idempotency_key: 'element 1' },
    { event: 'element 1', identity: 'ada', idempotency_key: 'element 1' },
    { event: 'element 1, later', identity: 'ada', idempotency_key: 'element 1' },
  ]);
  const report = JSON.parse(mixed.text) as { accepted: number; rejected: number };
  assert.deepEqual([mixed.status, report.accepted, report.rejected], [200, 2, 1]);
  assert.deepEqual(namesOf(await stored('element')), ['element 1']);
});

test('reserves no key for a request that is refused for a limit', async () => {
  const fill = await Promise.all(repeat(30, (n) => track({ event: `limit fill ${n}`, identity: 'limited' })));
  fill.forEach(assertAccepted);
  const refused = await track({ event: 'limited', identity: 'limited', idempotency_key: 'limited 0' });
  assert.equal(refused.status, 429);
  assertAccepted(await trackAll(repeat(600, () => ({ event: 'bulk fill', identity: 'limited' }))));
  const keyed = repeat(401, (n) => ({
    event: 'limited',
    identity: 'limited',
    idempotency_key: `limited ${n}`,
  }));
  assert.equal((await trackAll(keyed)).status, 429);

  const again = repeat(401, (n) => ({
    event: 'limited, later',
    identity: 'x',
    idempotency_key: `limited ${n}`,
  }));
  assertAccepted(await trackAll(again));
  assert.deepEqual(
    namesOf(await stored('limited')),
    again.map(({ event }) => event),
  );
});

test('makes the event_id from environment and key: 128 bits that are all in use', async () => {
  const events = repeat(400, (n) => ({
    event: 'bits',
    identity: `bits ${n}`,
    ...(n % 2 === 0 ? { idempotency_key: `bits ${n}` } : {}),
  }));
  assertAccepted(await trackAll(events));
  const ids = (await stored('bits')).map(({ event_id, identity }) => ({
    keyed: Number(identity.slice(5)) % 2 === 0,
    bits: BigInt(`0x${event_id.replaceAll('-', '')}`),
  }));
  assert.equal(new Set(ids.map(({ bits }) => bits)).size, 400);
  const keyed = ids.filter((id) => id.keyed);
  assert.equal(keyed.length, 200);
  // The chance that a bit of a hash is the same in 200 hashes is 1 in 2^199.
  const [all, none] = [
    keyed.reduce((bits, id) => bits & id.bits, 2n ** 128n - 1n),
    keyed.reduce((bits, id) => bits | id.bits, 0n),
  ];
  assert.deepEqual([all.toString(16), none.toString(16)], ['0', 'f'.repeat(32)]);
});

test('stores one event for a key while ClickHouse is away, and reserves no key of a request that it answers with 503', async (context) => {
  await untilStored(sluice);
  await sluice.clickhouse.kill9();
  // A running worker would compress waiting segments, and so make room in the backlog.
  const [worker] = sluice.workers;
  context.after(() => worker?.sigcont());
  worker?.sigstop();
  const repeats = await Promise.all(
    repeat(50, (n) =>
      repeated(() => track({ event: `outage ${n}`, identity: `outage ${n}`, idempotency_key: 'outage' })),
    ),
  );
  assert.ok(repeats.every(isAccepted), 'the backlog takes events');

  // The backlog takes whatever still fits, so the ballast gets smaller step by step.
  const ballast = (count: number, length: number) =>
    trackAll(
      repeat(count, (n) => ({ event: 'x', identity: `${n}`, properties: { a: 'x'.repeat(length) } })),
      flooded,
    );
  for (const [count, length] of [
    [200, 1000],
    [10, 1000],
    [1, 1000],
    [1, 0],
  ] as const) {
    await until(async () => (await ballast(count, length)).code === 'overloaded', {
      what: `the backlog has no room for ${count} events of ${length} characters`,
      everyMs: 1,
    });
  }
  // After a late refusal the API cannot tell whether an earlier copy was accepted. It answers unknown, and the test repeats.
  const refused = await Promise.all(
    sluice.api.map(({ baseUrl }, n) =>
      until(async () => {
        const answer = await post(baseUrl, paths.track, {
          app_id: appId,
          event: 'outage, refused',
          identity: 'refused',
          idempotency_key: `refused ${n}`,
        });
        return answer.code !== 'unknown' && answer;
      }, 'the API says that it stored nothing'),
    ),
  );
  for (const { status, code, headers } of refused) {
    assert.deepEqual([status, code], [503, 'overloaded']);
    assert.match(headers.get('retry-after') ?? '', /^[1-9]\d*$/);
  }

  worker?.sigcont();
  await sluice.clickhouse.restart();
  const later = await Promise.all(
    refused.map((_, n) =>
      repeated(() =>
        track({
          event: `outage, taken ${n}`,
          identity: `taken ${n}`,
          idempotency_key: `refused ${n}`,
        }),
      ),
    ),
  );
  later.forEach(assertAccepted);
  assertAccepted(await track({ event: 'outage, afterwards', identity: 'ada', idempotency_key: 'outage' }));
  const [kept, ...taken] = namesOf(await stored('outage'));
  assert.match(kept ?? '', /^outage \d+$/);
  assert.deepEqual(
    taken,
    refused.map((_, n) => `outage, taken ${n}`),
  );
});

test('stores no repeat however CLAIM_BYTES_MAX changes, even after Redis forgot the keys or was lost', async () => {
  const events = repeat(5, (n) => ({
    event: 'stable',
    identity: `stable ${n}`,
    idempotency_key: `stable ${n}`,
  }));
  assertAccepted(await trackAll(events));
  const before = await stored('stable');
  assert.equal(before.length, 5);
  const sendAgain = async () => {
    // Only the first process has the changed budget; the others have that of their start.
    const again = { app_id: appId, events: events.map((event) => ({ ...event, properties: { late: 1 } })) };
    assertAccepted(await repeated(() => post(String(sluice.api[0]?.baseUrl), paths.track, again)));
    assert.deepEqual(await stored('stable'), before);
  };
  const restoreWith = (env: NodeJS.ProcessEnv) =>
    runProgram('src/admin/main.js', ['state', 'reload'], { ...sluice.env, ...env });
  for (const bytes of [2 ** 20, 2 ** 33]) {
    const changed = { CLAIM_BYTES_MAX: String(bytes) };
    for (const child of [sluice.api[0], sluice.workers[0]]) await child?.restart(changed);
    await sendAgain();
    await withRedis(sluice, async (redis) => {
      await forgetKeys(redis);
      await sendAgain();
      await redis.flushall();
    });
    // The restore computes the number of buckets from the changed budget.
    await restoreWith(changed);
    await sendAgain();
  }
});
