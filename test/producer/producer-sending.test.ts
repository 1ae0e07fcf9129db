// How the library for servers gathers, sends, waits and gives up, with a server that answers as the test says.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { afterEach, beforeEach, describe, test } from 'node:test';
import {
  createAdministration,
  createSluice,
  type Dropped,
  type Ignored,
  type Problem,
  type Refusal,
  SluiceError,
} from '../../src/libraries/producer/index.js';
import { listen } from '../harness/listen.js';
import { until } from '../harness/wait.js';
import type { AnsweringServer } from '../support/answering-server.js';
import { type ProducerWorld, startProducerWorld, track } from '../support/producer-world.js';

let world: ProducerWorld;
let server: AnsweringServer;
let problems: Problem[];
let dropped: Dropped[];
let refused: Refusal[];
let create: ProducerWorld['create'];

beforeEach(async () => {
  world = await startProducerWorld();
  ({ server, problems, dropped, refused, create } = world);
});
afterEach(() => server.close());

const numbers = () => world.numbers();

describe('gathering', () => {
  test('a request is sent when it is full, and the rest after a wait', async () => {
    const client = create({ batchRecords: 100, parallelRequests: 1, intervalMs: 150 });
    const begunMs = performance.now();
    for (let n = 0; n < 250; n++) void track(client, n);
    await client.flush();
    assert.deepEqual(
      numbers().map(({ length }) => length),
      [100, 100, 50],
    );
    server.arrived.length = 0;
    void track(client, 250);
    await until(() => server.arrived.length === 1, 'the last one came');
    assert.ok((server.arrived[0]?.atMs ?? 0) - begunMs >= 149, 'it waited for others');
    await client.close();
  });

  test('a request is also sent when it has enough bytes', async () => {
    const client = create({ parallelRequests: 1, intervalMs: 60_000 });
    for (let n = 0; n < 5; n++) {
      void client.track({ event: 'E', identity: 'u', properties: { n, text: 'x'.repeat(250_000) } });
    }
    await until(() => server.arrived.length === 1, 'a request came');
    assert.equal(numbers()[0]?.length, 4);
    await client.close();
    assert.deepEqual(numbers(), [[0, 1, 2, 3], [4]]);
  });

  test('bodies are compressed if that is worth it, and name the write key', async () => {
    // Each flush is one request.
    const client = create({ writeKey: 'secret', intervalMs: 60_000 });
    await track(client, 0);
    await client.flush();
    for (let n = 0; n < 100; n++) void track(client, n, 'u');
    await client.close();
    const encodings = server.arrived.map(({ headers }) => headers['content-encoding']);
    assert.deepEqual([encodings[0], encodings.at(-1)], [undefined, 'gzip']);
    const authorization = `Basic ${Buffer.from('1:secret').toString('base64')}`;
    assert.equal(server.arrived[0]?.headers.authorization, authorization);
    assert.equal(server.arrived[0]?.body.app_id, '1');
  });

  test('each event has the time of its call and a key of its own, the same in every repeat', async () => {
    let answers = 0;
    server.answer = () => ({ status: answers++ === 0 ? 500 : 200 });
    const client = create();
    const fromMs = Date.now();
    void track(client, 0, 'u');
    void track(client, 1, 'u');
    await client.close();
    const [first, second] = server.arrived.map(({ body }) => body.events);
    assert.deepEqual(second, first);
    assert.equal(new Set(first?.map(({ idempotency_key }) => idempotency_key)).size, 2);
    const ms = Date.parse(String(first?.[0]?.timestamp));
    assert.ok(ms >= fromMs - 1 && ms <= Date.now());
  });
});

describe('order', () => {
  test("a user's records never overtake each other, while requests go in parallel", async () => {
    let underWay = 0;
    let mostUnderWay = 0;
    let turn = 0;
    const done = new Map<string, number>();
    server.answer = async ({ body, path }) => {
      underWay++;
      mostUnderWay = Math.max(mostUnderWay, underWay);
      // The answers come in random order, and some requests come twice.
      await new Promise((settle) => setTimeout(settle, (turn++ * 7) % 20));
      underWay--;
      if (turn % 5 === 0) return { status: 503, body: { err: { code: 'overloaded' } } };
      const field = path === '/api/track' ? 'events' : 'users';
      for (const { identity, properties } of body[field] ?? []) {
        const { n } = properties as { n: number };
        assert.ok(n > (done.get(String(identity)) ?? -1), `${identity} ${n}`);
        done.set(String(identity), n);
      }
      return { status: 200 };
    };
    const client = create({ batchRecords: 10, parallelRequests: 4 });
    for (let n = 0; n < 400; n++) {
      const identity = `u${n % 13}`;
      if (n % 3 === 0) void client.addUserProperties({ identity, properties: { n } });
      else void track(client, n, identity);
    }
    await client.close();
    assert.equal(done.size, 13);
    assert.ok(mostUnderWay > 1, `${mostUnderWay} at a time`);
    assert.deepEqual(refused, []);
  });

  test('a user’s identifications are sent one after another, other users’ in parallel', async () => {
    let underWay = 0;
    let mostUnderWay = 0;
    const ofUser: string[] = [];
    server.answer = async ({ body }) => {
      const { user_id, identity } = body as { user_id?: string; identity?: string };
      mostUnderWay = Math.max(mostUnderWay, ++underWay);
      await new Promise((settle) => setTimeout(settle, 5));
      underWay--;
      if (user_id === '7') ofUser.push(String(identity));
      return { status: 200 };
    };
    const client = create({ parallelRequests: 1 });
    for (let n = 0; n < 30; n++)
      void client.identify({ userId: n % 3 === 0 ? 7 : 100 + n, identity: `i${n}` });
    await client.close();
    assert.deepEqual(ofUser, ['i0', 'i3', 'i6', 'i9', 'i12', 'i15', 'i18', 'i21', 'i24', 'i27']);
    assert.ok(mostUnderWay > 4, `${mostUnderWay} at a time`);
  });
});

describe('failures', () => {
  test('it waits as long as Retry-After says', async () => {
    server.answer = () =>
      server.arrived.length === 1
        ? { status: 429, headers: { 'retry-after': '1' }, body: { err: { code: 'rate_limited' } } }
        : { status: 200 };
    const client = create();
    void track(client, 0);
    await client.flush();
    const [first, second] = server.arrived;
    assert.ok((second?.atMs ?? 0) - (first?.atMs ?? 0) >= 999);
    assert.deepEqual(
      problems.map(({ code }) => code),
      ['rate_limited'],
    );
    await client.close();
  });

  test('pauses grow, and end with a success', async () => {
    server.answer = () => ({ status: server.arrived.length <= 3 ? 500 : 200 });
    const client = create();
    void track(client, 0);
    await client.flush();
    const pauses = server.arrived.map(({ atMs }, index) => atMs - (server.arrived[index - 1]?.atMs ?? atMs));
    assert.ok((pauses[1] ?? 0) >= 124 && (pauses[2] ?? 0) >= 249 && (pauses[3] ?? 0) >= 499, pauses.join());
    assert.equal(problems.length, 1, 'reported once');
    await client.close();
  });

  for (const [name, toAnswer, code] of [
    ['a proxy refuses', { status: 403, body: '<html>no</html>' }, 'http_403'],
    ['a login page takes its place', { status: 200, body: '<html>hello</html>' }, 'http_200'],
    ['a page of maintenance does', { status: 200, body: { status: 'maintenance' } }, 'http_200'],
    ['another program has its address', { status: 200, body: { errors: [{ message: 'no' }] } }, 'http_200'],
    ['the write key is wrong', { status: 401, body: { err: { code: 'unauthorized' } } }, 'unauthorized'],
    ['the app_id is not known', { status: 400, body: { err: { code: 'unknown_app_id' } } }, 'unknown_app_id'],
  ] as const) {
    test(`nothing is lost while ${name}`, async () => {
      server.answer = () => (server.arrived.length === 1 ? toAnswer : { status: 200 });
      const client = create();
      void track(client, 0);
      await client.flush();
      assert.deepEqual(numbers(), [[0], [0]]);
      assert.deepEqual([problems.map((problem) => problem.code), refused], [[code], []]);
      await client.close();
    });
  }

  for (const [whom, tooLarge] of [
    ['the service', { status: 413, body: { err: { code: 'body_too_large' } } }],
    ['a gateway', { status: 413, body: '<html>413 Request Entity Too Large</html>' }],
    ['the network', { status: 408, body: { err: { code: 'body_too_slow' } } }],
    ['an answer in time', new Promise<never>(() => undefined)],
  ] as const)
    test(`a request that is too large for ${whom} is divided`, async () => {
      server.answer = ({ body }) => ((body.events?.length ?? 0) > 3 ? tooLarge : { status: 200 });
      const client = create({ parallelRequests: 1, requestMs: 500 });
      for (let n = 0; n < 10; n++) void track(client, n);
      await client.close();
      const taken = new Set(numbers().flatMap((some) => (some.length <= 3 ? some : [])));
      assert.deepEqual([...taken], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
      assert.deepEqual(refused, []);
    });

  test('a record that throws while it is read is refused, and the call does not throw', async () => {
    const client = create();
    const thrown = [new Error('of the test'), null];
    for (const error of thrown) {
      const hostile = {
        get properties(): never {
          throw error;
        },
      };
      void client.track({ event: 'E', identity: 'u', ...Object.create(hostile), __proto__: hostile });
      void client.addUserProperties({ identity: 'u', properties: { toJSON: hostile, at: hostile } as never });
    }
    void track(client, 1);
    await client.close();
    assert.deepEqual(numbers(), [[1]]);
    assert.deepEqual(
      refused.map(({ operation, code, field, record }) => [`${operation} ${code}`, field, record]),
      thrown.flatMap(() => [
        ['track invalid_type', 'properties', { event: 'E', identity: 'u' }],
        ['addUserProperties invalid_type', 'properties', { identity: 'u' }],
      ]),
    );
  });

  test('a call that the library itself refuses is reported with what it was given', async () => {
    const client = create();
    const circle: { self?: object } = {};
    circle.self = circle;
    void client.track({ event: 'E', properties: { n: 1 }, sessionId: 's' } as never);
    void client.track({ event: 'E', identity: 'u', properties: { circle } as never });
    void client.track('E' as never);
    await client.close();
    assert.deepEqual(
      refused.map(({ code, field, record }) => [code, field, record]),
      [
        ['missing_user', undefined, { event: 'E', properties: { n: 1 }, session_id: 's' }],
        ['invalid_type', 'properties', { event: 'E', identity: 'u' }],
        ['invalid_type', undefined, {}],
      ],
    );
    assert.match(refused[2]?.message ?? '', /takes one object: \{ event, identity, /);
  });

  test('fields that an operation does not have are named', async () => {
    const ignored: Ignored[] = [];
    const client = create({ onIgnored: (one) => ignored.push(one) });
    void client.track({ event: 'E', identity: 'u', propertys: { n: 1 }, app_id: '2' } as never);
    await track(client, 1);
    await client.close();
    assert.deepEqual(ignored, [{ operation: 'track', fields: ['propertys', 'app_id'] }]);
  });

  test('a limit is named, whether it holds up everything or one user', async () => {
    server.answer = ({ body }) => {
      const [name, status] = [
        ['bulk_app', 429],
        ['bulk_identity', 429],
        ['', 200],
      ][server.arrived.length - 1] as [string, number];
      if (status === 200) return { status };
      assert.equal(body.events?.length, 1);
      const headers = { 'retry-after': '1', 'ratelimit-policy': `"${name}";q=10;w=60` };
      return { status, headers, body: { err: { code: 'rate_limited', message: 'm' } } };
    };
    const client = create();
    await track(client, 1);
    await client.flush();
    await client.close();
    assert.deepEqual(
      problems.map(({ code, limit }) => [code, limit]),
      [
        ['rate_limited', 'bulk_app'],
        ['rate_limited', 'bulk_identity'],
      ],
    );
  });

  test('a listener that throws stops nothing', async () => {
    server.answer = () => ({
      status: 200,
      body: { accepted: 0, rejected: 1, errors: [{ index: 0, code: 'empty', message: 'm' }] },
    });
    const client = create({
      onRefused: () => {
        throw new Error('of the test');
      },
    });
    void track(client, 0);
    void track(client, 1);
    await client.flush();
    assert.equal(client.waitingRecords, 0);
    await client.close();
  });
});

describe('a call of the administration', () => {
  test('that was cut off is not repeated, since it may have been carried out; an answer of others is refused', async () => {
    const answers = ['[]', undefined, '<html>hello</html>'];
    let arrived = 0;
    const service = await listen(
      createServer((request, reply) => {
        const answer = answers[arrived++];
        if (answer === undefined) request.socket.destroy();
        else reply.end(answer);
      }),
    );
    const admin = createAdministration({ baseUrl: service.url, token: 't' });
    const create = () => admin.createAccount({ name: 'A', environments: ['Main'] });
    await create();
    for (const code of ['ECONNRESET', 'http_200'])
      await assert.rejects(create(), (error) => error instanceof SluiceError && error.code === code);
    assert.equal(arrived, 3);
    admin.close();
    service.stop();
  });
});

describe('a full queue', () => {
  test('makes callers that await wait, and drops none of their records', async () => {
    let release: () => void = () => undefined;
    const released = new Promise<void>((settle) => {
      release = settle;
    });
    server.answer = async () => {
      await released;
      return { status: 200 };
    };
    const client = create({ queueRecords: 20, batchRecords: 10 });
    let called = 0;
    const calls = (async () => {
      for (; called < 100; called++) await track(client, called);
    })();
    await until(() => server.arrived.length > 0, 'a request is under way');
    assert.equal(called, 19, 'the 20th call waits');
    release();
    await calls;
    await client.close();
    assert.equal(numbers().flat().length, 100);
    assert.deepEqual(dropped, []);
  });

  test('is also bounded for callers that do not wait', async () => {
    const client = create({ queueRecords: 20 });
    for (let n = 0; n < 100; n++) void track(client, n);
    assert.equal(client.waitingRecords, 40);
    await client.close();
    assert.deepEqual(dropped, [{ count: 60, reason: 'queue_full' }]);
  });

  test('drops records at its bound if so configured', async () => {
    const client = create({ queueRecords: 20, whenFull: 'drop' });
    for (let n = 0; n < 100; n++) await track(client, n);
    await client.close();
    const count = dropped.reduce((sum, one) => sum + one.count, 0);
    assert.equal(numbers().flat().length + count, 100);
    assert.ok(count > 0);
  });
});

describe('the end', () => {
  test('close gives up at its deadline and says what is lost', async () => {
    server.answer = () => new Promise(() => undefined);
    const client = create();
    void track(client, 0);
    void track(client, 1);
    assert.equal(await client.close(50), false);
    assert.deepEqual(dropped, [{ count: 2, reason: 'deadline' }]);
    await track(client, 2);
    await until(() => dropped.length === 2, 'the late call is reported');
    assert.deepEqual(dropped[1], { count: 1, reason: 'closed' });
  });

  test('wrong options are refused at once', () => {
    for (const [options, word] of [
      [{ baseUrl: 'events.example.com' }, /baseUrl/],
      [{ appId: '' }, /appId/],
      [{ appId: undefined } as never, /appId is missing/],
      [{ baseUrl: undefined } as never, /baseUrl is missing/],
      [{ validation: 'loose' as never }, /validation/],
      [{ batchRecords: 1001 }, /batchRecords/],
      [{ whenFull: 'explode' as never }, /whenFull/],
      [{ spool: '/var/spool/shop' } as never, /no option spool$/],
      [{ toString: 1 } as never, /no option toString$/],
    ] as const) {
      assert.throws(() => create(options), word);
    }
    assert.throws(() => (createSluice as () => unknown)(), /needs options: \{ appId, baseUrl \}/);
    const client = create();
    assert.throws(() => client.deleteUsers([]), /apiKey/);
  });
});
