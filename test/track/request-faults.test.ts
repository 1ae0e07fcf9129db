// Errors of the service itself while it handles a request, wherever they are thrown. The request is answered 500, all others
// go on, and nothing of a request is written to the log.

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { overloadedRetrySeconds } from '../../src/contract/limits.js';
import { outcomes } from '../../src/contract/outcomes.js';
import { readJsonBody } from '../../src/http/protocol/body.js';
import { isOwnFault } from '../../src/http/protocol/failed.js';
import { listen, type Route, type Server } from '../../src/http/protocol/server.js';
import { requestsFailed } from '../../src/metrics.js';
import { pino } from '../../src/packages/pino.js';
import { freePort } from '../harness/free-port.js';
import { openRaw } from '../harness/raw-http.js';
import { eventRecord, group, startCommitter, submissionOf } from '../support/shard.js';

const secret = 'grace@example.com';

function broken(): never {
  throw new TypeError(`cannot read ${secret}\n    at ${secret}`);
}

const bodyMax = 1_000_000;
const handlers: Readonly<Record<string, Route['handle']>> = {
  '/handler': broken,
  '/promise': async () => {
    await Promise.resolve();
    broken();
  },
  '/body': (exchange) => readJsonBody(exchange, bodyMax, broken),
  '/attended': (exchange) =>
    readJsonBody(exchange, bodyMax, () => exchange.attend(Promise.reject(new RangeError(secret)))),
  '/timer': (exchange) => void setTimeout(exchange.guard(broken), 1),
  '/answered': (exchange) => {
    exchange.ok();
    broken();
  },
  '/half-answered': (exchange) => exchange.reply(200, '{}', [['X', Symbol('no text') as unknown as string]]),
  '/half-answered-behind': (exchange) =>
    exchange.dropBody().reply(200, '{}', [['X', Symbol('no text') as unknown as string]]),
  '/right': (exchange) => readJsonBody(exchange, bodyMax, () => exchange.ok()),
};

const lines: string[] = [];
const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) });
const { redis, committer, submit } = await startCommitter({ log });
let server: Server;
let baseUrl: string;

before(async () => {
  const port = await freePort();
  const headers = [['X-Open', 'yes']] as const;
  const routes = Object.entries(handlers).map(
    ([path, handle]): Route => ({ method: 'post', path, handle, headers }),
  );
  server = await listen('127.0.0.1', port, 'PORT', false, routes, log);
  baseUrl = `http://127.0.0.1:${port}`;
});
after(() => server?.close());
beforeEach(() => {
  lines.length = 0;
});

const post = (
  path: string,
  body: string | Uint8Array<ArrayBuffer> = '{}',
  headers: Record<string, string> = {},
) =>
  fetch(`${baseUrl}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body,
    signal: AbortSignal.timeout(20_000),
  });

async function failuresOf(path: string): Promise<number> {
  const { values } = await requestsFailed.get();
  return values.find(({ labels }) => labels.path === path)?.value ?? 0;
}

describe('an error of ours', () => {
  const ways: readonly (readonly [
    string,
    string,
    string | Uint8Array<ArrayBuffer>,
    Record<string, string>?,
  ])[] = [
    ['a handler', '/handler', '{}'],
    ['the promise of a handler', '/promise', '{}'],
    ['the handler of a body', '/body', '{}'],
    ['the handler of a large body', '/body', ' '.repeat(900_000)],
    ['the handler of an empty body', '/body', ''],
    [
      'the handler of an inflated body',
      '/body',
      Uint8Array.from(gzipSync('{}')),
      { 'content-encoding': 'gzip' },
    ],
    ['a promise that the handler of a body began', '/attended', '{}'],
    ['a timer', '/timer', '{}'],
  ];
  for (const [where, path, body, headers] of ways) {
    test(`in ${where} is answered 500, counted, logged without a word of the request, and others are served`, async () => {
      const before = await failuresOf(path);
      const reply = await post(path, body, headers);
      assert.equal(reply.status, 500);
      assert.equal(reply.headers.get('retry-after'), String(overloadedRetrySeconds));
      assert.equal(reply.headers.get('x-open'), 'yes');
      const { err } = (await reply.json()) as { err: { code: string; message: string } };
      assert.deepEqual(err, { message: outcomes.internal_error.meaning, code: 'internal_error' });
      assert.equal((await failuresOf(path)) - before, 1);
      assert.equal(lines.length, 1);
      assert.match(
        lines[0] ?? '',
        new RegExp(`"path":"${path}","fault":"(Type|Range)Error","frames":\\["at `),
      );
      assert.ok(!lines.join().includes('grace'), lines.join());
      assert.equal((await post('/right')).status, 200);
    });
  }

  test('after the answer leaves the answer as it is', async () => {
    const reply = await post('/answered');
    assert.equal(reply.status, 200);
    assert.equal(await reply.text(), '{}');
    assert.equal(lines.length, 1);
  });

  for (const [when, path, framing, body] of [
    ['at once', '/half-answered', 'Content-Length: 2', '{}'],
    ['in a later turn', '/half-answered', 'Transfer-Encoding: chunked', '2\r\n{}\r\n0\r\n\r\n'],
    ['behind the body', '/half-answered-behind', 'Content-Length: 2', '{}'],
  ] as const) {
    test(`in the middle of an answer, sent ${when}, closes the connection, and others are served`, async () => {
      const connection = await openRaw(baseUrl);
      await connection.send(
        `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n${framing}\r\n\r\n`,
      );
      await connection.send(body);
      await connection.untilClosed();
      assert.ok(lines.length > 0);
      assert.equal((await post('/right')).status, 200);
    });
  }

  test('is not confused with a fault of Redis or the network', () => {
    for (const fault of [
      new TypeError(),
      new RangeError(),
      new ReferenceError(),
      new assert.AssertionError({}),
    ]) {
      assert.ok(isOwnFault(fault));
    }
    for (const fault of [new Error('Connection is closed.'), new SyntaxError(), undefined, 'x']) {
      assert.ok(!isOwnFault(fault));
    }
  });
});

describe('a commit that several requests share', () => {
  const good = () => group([eventRecord('good')]);
  const stored = { kind: 'committed', letters: 's' };

  test('holds back no answer when another cannot be delivered', async () => {
    const first = submit(good());
    committer.submit(submissionOf(good()), broken);
    const last = submit(good());
    assert.deepEqual(await Promise.all([first, last]), [stored, stored]);
    assert.ok(lines.length === 1 && !lines.join().includes('grace'), lines.join());
    assert.deepEqual(await submit(good()), stored);
  });

  test('that cannot be packed fails all of its requests, and the next one is made', async () => {
    const bad = { ...good(), records: { ...good().records, tableOf: broken } };
    const results = await Promise.all([submit(good()), submit(bad)]);
    assert.deepEqual(
      results.map(({ kind }) => kind),
      ['failed', 'failed'],
    );
    assert.deepEqual(await submit(good()), stored);
  });

  // Redis answers like a script that lost a group, or a record, or decided one too many.
  for (const answer of ['s', '=r', '=rsr', 's,ss']) {
    test(`whose answer is for other records, ${answer}, fails all of them, and the next one is made`, async () => {
      const { evalsha } = redis;
      redis.evalsha = (async () => answer) as unknown as typeof evalsha;
      const results = await Promise.all([submit(good()), submit(good())]);
      redis.evalsha = evalsha;
      assert.deepEqual(
        results.map(({ kind }) => kind),
        ['failed', 'failed'],
      );
      assert.deepEqual(await submit(good()), stored);
    });
  }
});
