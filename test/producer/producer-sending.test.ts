// How the library for servers gathers, sends, waits and gives up, with a server that answers as the test says.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { tempDir } from '../../harness/temp-dir.js';
import { until } from '../../harness/wait.js';
import {
  createSluice,
  type Dropped,
  type Problem,
  type Refusal,
  type SluiceOptions,
} from '../../src/producer/index.js';
import { type AnsweringServer, startAnsweringServer } from '../support/answering-server.js';

let server: AnsweringServer;
let problems: Problem[];
let dropped: Dropped[];
let refused: Refusal[];

beforeEach(async () => {
  server = await startAnsweringServer();
  problems = [];
  dropped = [];
  refused = [];
});
afterEach(() => server.close());

function create(options: Partial<SluiceOptions> = {}) {
  return createSluice({
    appId: '1',
    baseUrl: server.baseUrl,
    intervalMs: 5,
    onProblem: (problem) => problems.push(problem),
    onDropped: (one) => dropped.push(one),
    onRefused: (one) => refused.push(one),
    ...options,
  });
}

function track(client: ReturnType<typeof create>, n: number, identity = `user-${n}`): Promise<void> {
  return client.track({ event: 'E', identity, properties: { n } });
}

/** The numbers that came, request by request. */
function numbers(): number[][] {
  return server.arrived.map(({ body }) =>
    (body.events ?? []).map(({ properties }) => (properties as { n: number }).n),
  );
}

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
    await until(() => server.arrived.length === 1, { deadlineMs: 30_000, what: 'the last one came' });
    assert.ok((server.arrived[0]?.atMs ?? 0) - begunMs >= 149, 'it waited for others');
    await client.close();
  });

  test('a request is also sent when it has enough bytes', async () => {
    const client = create({ parallelRequests: 1, intervalMs: 60_000 });
    for (let n = 0; n < 5; n++) {
      void client.track({ event: 'E', identity: 'u', properties: { n, text: 'x'.repeat(250_000) } });
    }
    await until(() => server.arrived.length === 1, { deadlineMs: 30_000, what: 'a request came' });
    assert.equal(numbers()[0]?.length, 4);
    await client.close();
    assert.deepEqual(numbers(), [[0, 1, 2, 3], [4]]);
  });

  test('bodies are compressed if that is worth it, and name the write key', async () => {
    const client = create({ writeKey: 'secret' });
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
      // In an order of its own, some of them twice.
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
    assert.equal(problems.length, 1, 'told once');
    await client.close();
  });

  for (const [name, toAnswer, code] of [
    ['a proxy refuses', { status: 403, body: '<html>no</html>' }, 'http_403'],
    ['a login page takes its place', { status: 200, body: '<html>hello</html>' }, 'http_200'],
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

  test('a request that is too large is divided', async () => {
    server.answer = ({ body }) =>
      (body.events?.length ?? 0) > 3
        ? { status: 413, body: { err: { code: 'body_too_large' } } }
        : { status: 200 };
    const client = create({ parallelRequests: 1 });
    for (let n = 0; n < 10; n++) void track(client, n);
    await client.close();
    const taken = numbers().filter(({ length }) => length <= 3);
    assert.deepEqual(taken.flat(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert.deepEqual(refused, []);
  });

  test('a listener that throws stops nothing', async () => {
    server.answer = () => ({ status: 200, body: { errors: [{ index: 0, code: 'empty', message: 'm' }] } });
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

describe('a full queue', () => {
  test('makes callers wait that await, and drops nothing of theirs', async () => {
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
    await until(() => server.arrived.length > 0, { deadlineMs: 30_000, what: 'a request is under way' });
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
    await until(() => dropped.length === 2, { deadlineMs: 30_000, what: 'the late call is told' });
    assert.deepEqual(dropped[1], { count: 1, reason: 'closed' });
  });

  test('wrong options are refused at once', () => {
    for (const [options, word] of [
      [{ baseUrl: 'events.example.com' }, /baseUrl/],
      [{ appId: '' }, /appId/],
      [{ batchRecords: 1001 }, /batchRecords/],
      [{ whenFull: 'explode' as never }, /whenFull/],
    ] as const) {
      assert.throws(() => create(options), word);
    }
    const client = create();
    assert.throws(() => client.deleteUsers([]), /apiKey/);
  });
});

describe('the spool', () => {
  test('holds what does not fit into memory, in the order of the calls', async () => {
    let release: () => void = () => undefined;
    const released = new Promise<void>((settle) => {
      release = settle;
    });
    server.answer = async () => {
      await released;
      return { status: 200 };
    };
    const client = create({
      spoolFolder: tempDir('spool'),
      queueRecords: 50,
      batchRecords: 20,
      parallelRequests: 1,
    });
    for (let n = 0; n < 300; n++) await track(client, n, 'u');
    assert.ok(client.waitingRecords <= 50);
    release();
    // These come while memory has room again and the files hold earlier ones.
    for (let n = 300; n < 600; n++) await track(client, n, 'u');
    assert.equal(await client.close(), true);
    assert.deepEqual(
      numbers().flat(),
      Array.from({ length: 600 }, (_, n) => n),
    );
  });

  test('keeps what was left at a deadline, and the next client sends it before its own records', async () => {
    const spoolFolder = tempDir('spool');
    server.answer = () => new Promise(() => undefined);
    const first = create({ spoolFolder });
    for (let n = 0; n < 5; n++) await track(first, n, 'u');
    assert.equal(await first.close(20), false);
    server.arrived.length = 0;
    server.answer = () => ({ status: 200 });
    const second = create({ spoolFolder });
    for (let n = 5; n < 10; n++) await track(second, n, 'u');
    assert.equal(await second.close(), true);
    assert.deepEqual(numbers().flat(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert.deepEqual(readdirSync(spoolFolder), []);
  });

  test('sends neither incomplete nor settled lines', async () => {
    const spoolFolder = tempDir('spool');
    const line = (n: number) =>
      `t{"event":"E","identity":"u","properties":{"n":${n}},"idempotency_key":"k${n}"}\n`;
    writeFileSync(
      join(spoolFolder, '000000000001.records'),
      [0, 1, 2, 3, 4].map(line).join('') + line(5).slice(0, 30),
    );
    // The last mark was not written to its end: it has no dot.
    writeFileSync(join(spoolFolder, '000000000001.settled'), '\n0 2.\n3 1');
    writeFileSync(join(spoolFolder, '000000000003.records'), `${line(6)}damaged\n${line(7)}`);
    const client = create({ spoolFolder });
    await track(client, 8, 'u');
    assert.equal(await client.close(), true);
    assert.deepEqual(numbers().flat(), [2, 3, 4, 6, 7, 8]);
    assert.deepEqual(
      problems.map(({ code }) => code),
      ['spool'],
    );
  });

  test('is bounded: callers that await wait for room', async () => {
    const spoolFolder = tempDir('spool');
    let isOpen = false;
    server.answer = () => ({ status: isOpen ? 200 : 503 });
    const client = create({ spoolFolder, queueRecords: 10, spoolBytes: 8 * 1024 * 1024 });
    const text = 'x'.repeat(900_000);
    let called = 0;
    const calls = (async () => {
      for (; called < 20; called++)
        await client.track({ event: 'E', identity: 'u', properties: { n: called, text } });
    })();
    await until(() => problems.length > 0 && called >= 9, { deadlineMs: 10_000, what: 'it is full' });
    assert.ok(called < 12, `${called} calls`);
    isOpen = true;
    await calls;
    assert.equal(await client.close(), true);
    assert.equal(new Set(numbers().flat()).size, 20);
    assert.deepEqual(dropped, []);
  });

  test('belongs to one process: it is refused while its owner lives, and taken over when the owner is gone', async () => {
    const spoolFolder = tempDir('spool');
    const stat = readFileSync('/proc/1/stat', 'utf8');
    const started = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    writeFileSync(join(spoolFolder, 'owner'), `1 ${started} ${boot}`);
    assert.throws(() => create({ spoolFolder }), /in use by process 1/);
    // The same id, given again.
    writeFileSync(join(spoolFolder, 'owner'), `1 ${Number(started) + 1} ${boot}`);
    const client = create({ spoolFolder });
    assert.ok(existsSync(join(spoolFolder, 'owner')));
    await client.close();
  });
});
