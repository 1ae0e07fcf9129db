// How POST /api/track answers odd or malformed HTTP requests, sent byte by byte over bare sockets: the reply, whether the
// connection is closed, and whether the event was stored. After each request the process still runs and serves a new
// connection at once.
//
// uWebSockets.js decides some of this before the service sees anything. The tests assert what its parser really lets through,
// with the reason why it does no harm.

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { describe, test } from 'node:test';
import { bodies, receiving } from '../../src/contract/limits.js';
import { type OutcomeCode, outcomes } from '../../src/contract/outcomes.js';
import { openRaw, type RawConnection, type RawReply } from '../harness/raw-http.js';
import { until } from '../harness/wait.js';
import { checkLogs } from '../support/logs.js';
import { sharedSluice } from '../support/sluice.js';

/** The parser's timer: 10 s in steps of 4 s, and time for a busy machine. */
const timerMsMax = 40_000;
/** Enough for a busy machine and less than the timer, so that the service itself closed what is closed by then. */
const servedMsMax = 6_000;
/** A text in headers and queries, which answers and logs must not repeat. */
const canary = 'canary-5f0c';

type Expected = { readonly count: number | 'perhaps'; readonly sentBy: string };
/** How many events each identity must have at the end; `perhaps` if nobody can know. */
const expectedByIdentity = new Map<string, Expected>();

/** An event whose identity is used nowhere else. */
function newEvent(count: number | 'perhaps', sentBy: string): string {
  const identity = `framing-${String(expectedByIdentity.size).padStart(4, '0')}`;
  expectedByIdentity.set(identity, { count, sentBy });
  return JSON.stringify({ app_id: sluice.appId, event: 'Framed', identity });
}

const line = 'POST /api/track HTTP/1.1';
const host = 'Host: sluice.test';
const json = 'Content-Type: application/json';
const chunked = 'Transfer-Encoding: chunked';

const contentLength = (body: string) => `Content-Length: ${Buffer.byteLength(body)}`;
const head = (...lines: string[]) => `${lines.join('\r\n')}\r\n\r\n`;
const withHeaders = (body: string, count: number) =>
  request(
    body,
    Array.from({ length: count - 3 }, (_, index) => `X-${index}: a`),
  );
const hex = (body: string) => Buffer.byteLength(body).toString(16);
const inOneChunk = (body: string) => `${hex(body)}\r\n${body}\r\n0\r\n\r\n`;

/** A well-formed request, if wanted with further header lines or another request line. */
const request = (body: string, more: readonly string[] = [], first = line) =>
  head(first, host, json, contentLength(body), ...more) + body;
const chunkedRequest = (body: string, more: readonly string[] = [], first = line) =>
  head(first, host, json, chunked, ...more) + inOneChunk(body);

/** The header line that makes a request's head this long. */
const paddingTo = (headBytes: number, body: string) =>
  `X-A: ${'a'.repeat(headBytes - request(body, ['X-A: ']).length + body.length)}`;

/** The size of the largest head. The bound on headers does not count the request line and the line breaks around them. */
const headBytesMax = receiving.headerBytesMax + line.length + 4;

type Bytes = (body: string) => string | Uint8Array;

type Answer = {
  /** The status of the only reply. `refused`: any error, with or without JSON. */
  readonly status: number | 'refused';
  /** The code of the error; absent if the parser answers by itself, without JSON. */
  readonly code?: OutcomeCode;
  readonly connection: 'open' | 'closed';
  readonly stored: boolean | 'perhaps';
  readonly reply?: (reply: RawReply) => void;
};

type Row = readonly [name: string, bytes: Bytes, answer: Answer];
type Request = readonly [name: string, bytes: (body: string) => string];

const taken = { status: 200, connection: 'open', stored: true } as const;
const takenAndClosed = { status: 200, connection: 'closed', stored: true } as const;
const framing = { status: 400, code: 'invalid_framing', connection: 'closed', stored: false } as const;
const parser400 = { status: 400, connection: 'closed', stored: false } as const;
const parserRefuses = { status: 'refused', connection: 'closed', stored: false } as const;
const parser431 = { status: 431, connection: 'closed', stored: false } as const;
const invalidJson = { status: 400, code: 'invalid_json', connection: 'open', stored: false } as const;
const tooLarge = { status: 413, code: 'body_too_large', connection: 'closed', stored: false } as const;
const notFound = { status: 404, code: 'not_found', connection: 'open', stored: false } as const;
const wrongMethod = {
  status: 405,
  code: 'method_not_allowed',
  connection: 'open',
  stored: false,
  reply: (reply: RawReply) => assert.equal(reply.headers.get('allow'), 'POST'),
} as const;

const accepted: readonly Row[] = [
  ['a Content-Length', (body) => request(body), taken],
  [
    'header names in any case, tabs and spaces around values',
    (body) =>
      head(line, 'hOsT:\tx \t', 'CONTENT-type:application/json', `content-LENGTH:\t ${body.length}  `) + body,
    taken,
  ],
  [
    'a query, which is ignored',
    (body) => request(body, [], `POST /api/track?token=${canary}&strict HTTP/1.1`),
    taken,
  ],
  ['an Authorization header', (body) => request(body, [`Authorization: ${canary}`]), taken],
  [
    'bytes 80 to FF in a header',
    (body) => Buffer.from(request(body, [`X-A: ${canary}\x80\xa0\xff`]), 'latin1'),
    taken,
  ],
  [
    // The parser drops such bytes in front of a value, as it does spaces.
    'a byte 80 to FF in front of the value of a header',
    (body) =>
      Buffer.from(
        head(line, host, 'Content-Type: \xffapplication/json', contentLength(body)) + body,
        'latin1',
      ),
    taken,
  ],
  ['headers of 16,384 bytes', (body) => request(body, [paddingTo(headBytesMax, body)]), taken],
  [
    'headers of 16,385 bytes',
    (body) => request(body, [paddingTo(headBytesMax + 1, body)]),
    { status: 431, code: 'headers_too_large', connection: 'open', stored: false },
  ],
  ['98 headers', (body) => withHeaders(body, 98), taken],
  ['Connection: close', (body) => request(body, ['Connection: close']), takenAndClosed],
  [
    'Upgrade: h2c',
    (body) =>
      request(body, ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABk']),
    taken,
  ],
  ['Upgrade: websocket', (body) => request(body, ['Connection: Upgrade', 'Upgrade: websocket']), taken],
  [
    'Transfer-Encoding: chunked, and the connection is closed',
    (body) => chunkedRequest(body),
    takenAndClosed,
  ],
  [
    'chunks of one byte each',
    (body) => `${head(line, host, json, chunked)}${[...body].map((c) => `1\r\n${c}\r\n`).join('')}0\r\n\r\n`,
    takenAndClosed,
  ],
  [
    'Transfer-Encoding: Chunked, since its value is case-insensitive',
    (body) => head(line, host, json, 'Transfer-Encoding: Chunked') + inOneChunk(body),
    takenAndClosed,
  ],
];

const refused: readonly Row[] = [
  ['neither Content-Length nor a body', () => head(line, host, json), invalidJson],
  ['Content-Length: 0', () => head(line, host, json, 'Content-Length: 0'), invalidJson],
  [
    'two Content-Type headers',
    (body) => request(body, [json]),
    { status: 400, code: 'invalid_content_type', connection: 'open', stored: false },
  ],
  [
    'two Content-Encoding headers',
    (body) => request(body, ['Content-Encoding: identity', 'Content-Encoding: identity']),
    { status: 415, code: 'unsupported_encoding', connection: 'open', stored: false },
  ],
  ...[`${4 * bodies.bulkBytesMax}`, '999999999999999', '99999999999999999'].map(
    (length): Row => [
      `Content-Length: ${length}, at once and without the body`,
      () => head(line, host, json, `Content-Length: ${length}`),
      tooLarge,
    ],
  ),
];

const ambiguous: readonly Row[] = [
  [
    'two different Content-Length',
    (body) => head(line, host, json, contentLength(body), `Content-Length: 2`) + body,
    framing,
  ],
  [
    'two equal Content-Length',
    (body) => head(line, host, json, contentLength(body), contentLength(body)) + body,
    framing,
  ],
  ...['2, 2', '+2', '-1', '0x2', '2.0', '1e1', '2 2', '99999999999999999999999'].map(
    (value): Row => [
      `Content-Length: ${value}`,
      () => `${head(line, host, json, `Content-Length: ${value}`)}{}`,
      parser400,
    ],
  ),
  ['an empty Content-Length', (body) => head(line, host, json, 'Content-Length:') + body, framing],
  [
    'Transfer-Encoding and Content-Length',
    (body) => head(line, host, json, contentLength(body), chunked) + inOneChunk(body),
    parser400,
  ],
  ...['xchunked', 'gzip, chunked', 'chunked, gzip', 'chunked, chunked', 'identity', 'gzip', ''].map(
    (value): Row => [
      `Transfer-Encoding: ${value || '(empty)'}`,
      (body: string) => head(line, host, json, `Transfer-Encoding: ${value}`) + inOneChunk(body),
      framing,
    ],
  ),
  ['a chunked body that announces trailers', (body) => chunkedRequest(body, ['Trailer: X-T']), framing],
  [
    'two Transfer-Encoding headers',
    (body) => head(line, host, json, chunked, chunked) + inOneChunk(body),
    framing,
  ],
];

const malformed: readonly Row[] = [
  ['HTTP/1.0', (body) => request(body, [], 'POST /api/track HTTP/1.0'), parserRefuses],
  ['the preface of HTTP/2', () => 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', parserRefuses],
  ['the hello of TLS', () => Buffer.from(`16030100f8010000f40303${'00'.repeat(240)}`, 'hex'), parserRefuses],
  [
    'the absolute form',
    (body) => request(body, [], 'POST http://sluice.test/api/track HTTP/1.1'),
    parserRefuses,
  ],
  [
    'lines ending with a bare LF',
    (body) => head(line, host, json, contentLength(body)).replaceAll('\r\n', '\n') + body,
    parserRefuses,
  ],
  ['no Host', (body) => head(line, json, contentLength(body)) + body, parser400],
  ['two Host', (body) => request(body, [host]), parser400],
  [
    'a request head of 16 KiB more',
    (body) => request(body, [paddingTo(receiving.headerBytesMax + receiving.headerBytesAnswered + 1, body)]),
    parser431,
  ],
  ['101 headers', (body) => withHeaders(body, 101), parser431],
  [
    'a path of 33,000 characters',
    (body) => request(body, [], `POST /api/track?${'q'.repeat(33_000)} HTTP/1.1`),
    parser431,
  ],
  ['a folded header', (body) => request(body, ['X-A: a\r\n b']), parser400],
  ['a space before the colon', (body) => request(body, ['X-A : a']), parser400],
  ['a header without a colon', (body) => request(body, ['X-A']), parser400],
  ['NUL in a header', (body) => request(body, ['X-A: a\0b']), parser400],
  [
    'a chunk trailer',
    (body) => `${head(line, host, json, chunked)}${hex(body)}\r\n${body}\r\n0\r\nX-T: a\r\n\r\n`,
    parserRefuses,
  ],
];

// The parser accepts these chunked bodies as well-formed. That does no harm: every chunked request closes its connection, so
// what follows is never read as another request.
const parserGaps: readonly Request[] = [
  [
    'a chunk size with the digit g, read as 16',
    (body: string) => `${head(line, host, json, chunked)}g0\r\n${body.padEnd(256)}\r\n0\r\n\r\n`,
  ],
  [
    'a chunk size that ends with a bare LF',
    (body: string) => `${head(line, host, json, chunked)}${hex(body)}\n${body}\r\n0\r\n\r\n`,
  ],
  [
    'other bytes where CRLF ends a chunk',
    (body: string) => `${head(line, host, json, chunked)}${hex(body)}\r\n${body}XX0\r\n\r\n`,
  ],
];

const otherTargets: readonly Row[] = [
  ...[
    '//api/track',
    '/api/track/',
    '/API/track',
    '/api/../api/track',
    '/x/%2e%2e/api/track',
    '/api/%74rack',
  ].map(
    (path): Row => [`POST ${path}`, (body: string) => request(body, [], `POST ${path} HTTP/1.1`), notFound],
  ),
  ['GET /', () => head('GET / HTTP/1.1', host), notFound],
  ...['GET', 'PUT', 'PATCH', 'DELETE', 'post', 'MKCOL'].map(
    (method): Row => [
      `${method} /api/track`,
      (body: string) => request(body, [`X-A: ${canary}`], `${method} /api/track?${canary} HTTP/1.1`),
      wrongMethod,
    ],
  ),
  [
    'POST /api/nowhere with a chunked body, after which the connection is closed',
    (body) => chunkedRequest(body, [], 'POST /api/nowhere HTTP/1.1'),
    { ...notFound, connection: 'closed' },
  ],
  [
    'PUT /api/track with a chunked body, after which the connection is closed',
    (body) => chunkedRequest(body, [], 'PUT /api/track HTTP/1.1'),
    { ...wrongMethod, connection: 'closed' },
  ],
  [
    'a preflight',
    () =>
      head(
        'OPTIONS /api/track HTTP/1.1',
        host,
        `Origin: https://${canary}.test`,
        'Access-Control-Request-Method: POST',
        `Access-Control-Request-Headers: ${canary}`,
      ),
    wrongMethod,
  ],
  [
    'a request of a browser on another site, which gets no CORS headers',
    (body) => request(body, [`Origin: https://${canary}.test`]),
    taken,
  ],
  [
    'the opening of a WebSocket',
    () =>
      head(
        'GET /api/track HTTP/1.1',
        host,
        'Connection: Upgrade',
        'Upgrade: websocket',
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
        'Sec-WebSocket-Version: 13',
      ),
    wrongMethod,
  ],
];

// If a connection closes after a request, bytes behind it are never a request, whatever the target and the answer of the
// first: a proxy in front may have seen the two as one.
const withRequestBehind: readonly Request[] = [
  ...[
    'POST /api/track',
    'PUT /api/track',
    'GET /api/track',
    'OPTIONS /api/collect',
    'POST /api/nowhere',
    'GET /health/live',
    'GET /openapi.json',
  ].flatMap((target): Request[] => [
    [
      `${target} with Transfer-Encoding: xchunked`,
      () => `${head(`${target} HTTP/1.1`, host, json, 'Transfer-Encoding: xchunked')}0\r\n\r\n`,
    ],
    [
      `${target} with two Content-Length`,
      () => `${head(`${target} HTTP/1.1`, host, json, 'Content-Length: 2', 'Content-Length: 400')}{}`,
    ],
    [
      `${target} with a chunk that other bytes than CRLF end`,
      () => `${head(`${target} HTTP/1.1`, host, json, chunked)}1\r\n XX0\r\n\r\n`,
    ],
  ]),
  ['an empty Content-Length', () => head(line, host, json, 'Content-Length:')],
  [
    'a Content-Length above the largest body',
    () => head(line, host, json, `Content-Length: ${4 * bodies.bulkBytesMax}`),
  ],
  ['Connection: close', (body) => request(body, ['Connection: close'])],
  ['a chunked body', (body) => chunkedRequest(body)],
  ...parserGaps,
];

/** Sends a row's bytes on a connection of its own and checks everything that the row says. */
async function run([
  name,
  bytes,
  { status, code, connection: state, stored, reply: check },
]: Row): Promise<void> {
  const body = newEvent(stored === 'perhaps' ? 'perhaps' : Number(stored), name);
  const connection = await openRaw(sluice.baseUrl);
  try {
    await connection.send(bytes(body));
    const reply = await connection.reply(0);
    if (status === 'refused') assert.ok(reply.status >= 400, `${reply.status} ${reply.body}`);
    else assert.equal(reply.status, status, reply.body);
    checkReply(reply, code);
    check?.(reply);
    if (state === 'open') await checkInStep(connection, 1);
    else await checkClosed(connection, 1);
  } finally {
    connection.destroy();
  }
}

function checkReply(reply: RawReply, code: OutcomeCode | undefined): void {
  assert.doesNotMatch(reply.head, new RegExp(canary), 'no header repeats what was sent');
  assert.doesNotMatch(reply.body, new RegExp(canary), 'the body does not repeat what was sent');
  assert.doesNotMatch(reply.head, /access-control-/i);
  if (reply.status === 200) assert.equal(reply.body, '{}');
  if (code !== undefined || reply.status === 200) {
    assert.equal(reply.headers.get('content-type'), 'application/json');
  }
  if (code === undefined) return;
  const { err } = JSON.parse(reply.body) as { err: { code: string; message: string } };
  assert.equal(err.code, code);
  assert.ok(err.message.length > 0);
  assert.equal(reply.status, outcomes[code].status);
}

/** The next request on the connection gets its own answer, so no bytes of the previous one were left over. */
async function checkInStep(connection: RawConnection, number: number): Promise<void> {
  await connection.send(request('{}'));
  const reply = await connection.reply(number);
  checkReply(reply, 'missing_field');
  assert.equal(connection.replies.length, number + 1);
  assert.equal(connection.closed, false);
}

async function checkClosed(connection: RawConnection, replies: number): Promise<void> {
  await connection.untilClosed(servedMsMax);
  assert.equal(connection.replies.length, replies, 'one answer per request, and nothing behind it');
  assert.equal(connection.rest, '');
}

async function askAsStranger(body: string): Promise<RawReply> {
  const connection = await openRaw(sluice.baseUrl);
  try {
    await connection.send(request(body));
    return await connection.reply(0, servedMsMax);
  } finally {
    connection.destroy();
  }
}

/** The process that served the last row also serves a new connection. */
async function checkServes(): Promise<void> {
  const event = JSON.parse(newEvent(1, 'a well-formed request')) as { identity: string };
  const body = JSON.stringify({ ...event, idempotency_key: event.identity });
  let reply = await askAsStranger(body);
  // If the machine paused, the outcome may be unknown, and a caller repeats the request.
  if (reply.status === 503) {
    checkReply(reply, 'unknown');
    reply = await askAsStranger(body);
  }
  assert.equal(`${reply.status} ${reply.body}`, '200 {}');
}

function table(title: string, rows: readonly Row[]): void {
  describe(title, () => {
    for (const row of rows) {
      test(row[0], async () => {
        await run(row);
        await checkServes();
      });
    }
  });
}

/**
 * `replies`: the statuses of what is answered before the timer closes the connection; with 200 the event is stored. `drip`: sent again and
 * again until then.
 */
type TimedRow = readonly [
  name: string,
  bytes: Bytes,
  replies: readonly number[],
  drip?: { readonly bytes: string; readonly everyMs: number },
];

const timed: readonly TimedRow[] = [
  ['nothing', () => '', []],
  ['half a head', () => `${line}\r\n${host}\r\n`, []],
  ['a head that trickles', () => `${line}\r\n${host}\r\nX-A: `, [], { bytes: 'a', everyMs: 1000 }],
  ['a bare CR in a header', (body) => request(body, ['X-A: a\rb']), []],
  ['an empty line first', (body) => `\r\n${request(body)}`, []],
  ['a request line without version', () => head('POST /api/track', host), []],
  ['half a body', (body) => request(body).slice(0, -20), []],
  [
    'a body of 10 kB per second',
    () => `${head(line, host, json, `Content-Length: ${bodies.singleBytesMax}`)}{`,
    [],
    { bytes: ' '.repeat(1000), everyMs: 100 },
  ],
  [
    'a body of 40 kB a second, which is answered that it is too slow',
    () => `${head(line, host, json, `Content-Length: ${bodies.singleBytesMax}`)}{`,
    [408],
    { bytes: ' '.repeat(4000), everyMs: 100 },
  ],
  ['chunks without an end', (body) => `${head(line, host, json, chunked)}${hex(body)}\r\n${body}\r\n`, []],
  [
    'one chunk of one byte per second',
    () => head(line, host, json, chunked),
    [],
    { bytes: '1\r\n{\r\n', everyMs: 1000 },
  ],
  [
    // The parser reads `2;a` as a much larger number.
    'a chunk extension',
    (body) => `${head(line, host, json, chunked)}${hex(body)};a\r\n${body}\r\n0\r\n\r\n`,
    [],
  ],
  [
    'Expect: 100-continue and then no body',
    (body) => head(line, host, json, contentLength(body), 'Expect: 100-continue'),
    [100],
  ],
  ['nothing after an accepted event', (body) => request(body), [200]],
  ['nothing after a refused event', () => request('{}'), [400]],
  ['nothing after a wrong path', () => head('GET /api/nowhere HTTP/1.1', host), [404]],
  ['nothing after a wrong method', () => head('GET /api/track HTTP/1.1', host), [405]],
];

const timedResults = new Map<TimedRow, Promise<void>>();

/** All run at once and beside the other tests, since each takes the whole time of the timer. */
async function runTimed([name, bytes, replies, drip]: TimedRow): Promise<void> {
  const connection = await openRaw(sluice.baseUrl);
  let dripping: NodeJS.Timeout | undefined;
  try {
    await connection.send(bytes(newEvent(Number(replies.includes(200)), name)));
    if (drip !== undefined) {
      const startedAt = performance.now();
      let pieces = 0;
      // A timer that a busy machine fires too late sends what has become due.
      dripping = setInterval(() => {
        const due = Math.floor((performance.now() - startedAt) / drip.everyMs) - pieces;
        pieces += due;
        if (due > 0) void connection.send(drip.bytes.repeat(due));
      }, drip.everyMs);
    }
    await connection.untilClosed(timerMsMax);
    assert.deepEqual(
      connection.replies.map((reply) => reply.status),
      replies,
    );
    assert.equal(connection.rest, '');
  } finally {
    clearInterval(dripping);
    connection.destroy();
  }
}

const sluice = await sharedSluice();
for (const row of timed) {
  const result = runTimed(row);
  // The test of the row reports its failure, perhaps much later.
  result.catch(() => undefined);
  timedResults.set(row, result);
}

table('takes a request with', accepted);
table('refuses a request with', refused);
table('refuses a request that states its length twice or never, and closes the connection:', ambiguous);
table('refuses what is not HTTP/1.1, and closes the connection:', malformed);
table(
  'takes, as the parser does, and closes the connection after',
  parserGaps.map((gap): Row => [...gap, takenAndClosed]),
);
table('answers other targets with JSON and without CORS headers:', otherTargets);

describe('answers at most once, closes the connection, and never executes what follows', {
  concurrency: 8,
}, () => {
  for (const [name, bytes] of withRequestBehind) {
    test(name, async () => {
      const first = bytes(newEvent('perhaps', name));
      const connection = await openRaw(sluice.baseUrl);
      try {
        await connection.send(first + request(newEvent(0, `what stands behind ${name}`)));
        await connection.untilClosed(servedMsMax);
        assert.ok(connection.replies.length <= 1, connection.replies.map((reply) => reply.status).join());
      } finally {
        connection.destroy();
      }
      await checkServes();
    });
  }
});

describe('over the life of a connection', () => {
  test('accepts one request after another, even after a refused one', async () => {
    const connection = await openRaw(sluice.baseUrl);
    for (let number = 0; number < 3; number += 1) {
      await connection.send(request(newEvent(1, 'a well-formed request')));
      assert.equal((await connection.reply(number * 2)).body, '{}');
      await checkInStep(connection, number * 2 + 1);
    }
    connection.destroy();
    await checkServes();
  });

  test('answers HEAD with one length and no body, and then the next request', async () => {
    const socket = connect(Number(new URL(sluice.baseUrl).port), '127.0.0.1');
    let received = '';
    let closed = false;
    socket.setEncoding('latin1').on('data', (text: string) => {
      received += text;
    });
    socket.on('close', () => {
      closed = true;
    });
    /** Settles with the head of the answer to HEAD, behind which the answer to the next request has come. */
    const answerTo = async (path: string, headers = '') => {
      received = '';
      socket.write(`HEAD ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`);
      await until(() => closed || received.includes('\r\n\r\n'), {
        deadlineMs: servedMsMax,
        what: `HEAD ${path} is answered`,
      });
      const answer = received;
      socket.write(request(newEvent(1, 'a well-formed request')));
      const ended = () => closed || received.slice(answer.length).endsWith('\r\n\r\n{}');
      await until(ended, { deadlineMs: servedMsMax, what: `the request behind HEAD ${path} is answered` });
      assert.ok(!closed, `the connection stays open after HEAD ${path}`);
      assert.match(received.slice(answer.length), /^HTTP\/1\.1 200 OK\r\n/, path);
      assert.ok(answer.endsWith('\r\n\r\n'), 'no body');
      return answer;
    };
    try {
      for (const [path, status] of [
        ['/health/live', 200],
        ['/health/ready', 200],
        ['/openapi.json', 405],
        ['/api/track', 405],
        ['/api/collect', 405],
        ['/nope', 404],
        ['/sdk.js', 200],
        ['/sdk.js.map', 200],
      ] as const) {
        const answer = await answerTo(path);
        assert.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `), path);
        assert.equal(answer.match(/^content-length: *[1-9]\d*\r$/gim)?.length, 1, answer);
        assert.equal(answer.match(/^content-length/gim)?.length, 1, answer);
      }
      const etag = /^etag: *(\S+)/im.exec(await answerTo('/sdk.js'))?.[1];
      const unchanged = await answerTo('/sdk.js', `If-None-Match: ${etag}\r\n`);
      assert.match(unchanged, /^HTTP\/1\.1 304 /);
      assert.doesNotMatch(unchanged, /^content-length/im);
    } finally {
      socket.destroy();
    }
    await checkServes();
  });

  test('accepts a request that arrives byte by byte', async () => {
    const connection = await openRaw(sluice.baseUrl);
    for (const byte of Buffer.from(request(newEvent(1, 'a well-formed request'))))
      await connection.send(Buffer.of(byte));
    assert.equal((await connection.reply(0)).status, 200);
    await checkInStep(connection, 1);
    connection.destroy();
    await checkServes();
  });

  test('answers a request with an empty body whose head arrives in pieces', async () => {
    for (const length of [[], ['Content-Length: 0'], ['Content-Length: 000']]) {
      const bytes = head(line, host, json, ...length);
      for (const at of [1, line.length + 1, bytes.length - 1]) {
        const connection = await openRaw(sluice.baseUrl);
        await connection.send(bytes.slice(0, at));
        // The parser must see each part by itself.
        await new Promise((resolve) => setTimeout(resolve, 20));
        await connection.send(bytes.slice(at));
        checkReply(await connection.reply(0, servedMsMax), 'invalid_json');
        await checkInStep(connection, 1);
        connection.destroy();
      }
    }
    await checkServes();
  });

  test('accepts a chunked request that arrives byte by byte', async () => {
    const connection = await openRaw(sluice.baseUrl);
    const bytes = Buffer.from(chunkedRequest(newEvent(1, 'a chunked request, byte by byte')));
    // The parser considers the body complete before its last line, and the service answers and closes. Bytes that arrive after that reset
    // the connection, and an answer that was not read yet is lost. So the last lines are sent together.
    const lastChunk = bytes.length - '0\r\n\r\n'.length;
    for (const byte of bytes.subarray(0, lastChunk)) await connection.send(Buffer.of(byte));
    await connection.send(bytes.subarray(lastChunk));
    assert.equal((await connection.reply(0)).status, 200);
    await checkClosed(connection, 1);
    connection.destroy();
  });

  for (const expected of ['100-continue', '100-Continue', '100-CONTINUE'])
    test(`answers 100 to Expect: ${expected} and then accepts or refuses the body`, async () => {
      const body = newEvent(1, 'a well-formed request');
      const connection = await openRaw(sluice.baseUrl);
      await connection.send(head(line, host, json, contentLength(body), `Expect: ${expected}`));
      assert.equal((await connection.reply(0)).status, 100);
      await connection.send(body);
      const accepted = await connection.reply(1);
      assert.equal(`${accepted.status} ${accepted.body}`, '200 {}');
      await connection.send(head(line, host, json, 'Content-Length: 2', `Expect: ${expected}`));
      assert.equal((await connection.reply(2)).status, 100);
      await connection.send('[]');
      const refused = await connection.reply(3);
      assert.deepEqual([refused.status, refused.headers.get('content-type')], [400, 'application/json']);
      await checkInStep(connection, 4);
      connection.destroy();
      await checkServes();
    });

  test('closes without an answer when a second request is pipelined behind the first', async () => {
    // The parser does so. The caller cannot know what was stored, and repeats with the same keys.
    const connection = await openRaw(sluice.baseUrl);
    const bytes =
      request(newEvent('perhaps', 'the first of two')) + request(newEvent('perhaps', 'the second'));
    await connection.send(bytes);
    await checkClosed(connection, 0);
    await checkServes();
  });

  test('closes, mostly without an answer, when the sender ends its side before the reply', async () => {
    const connection = await openRaw(sluice.baseUrl);
    void connection.send(request(newEvent('perhaps', 'a sender that ends its side')));
    connection.endSending();
    await connection.untilClosed(servedMsMax);
    assert.ok(connection.replies.length <= 1);
    await checkServes();
  });

  test('survives senders that leave in the middle of head or body', async () => {
    const bytes = request(newEvent(0, 'a sender that leaves'));
    for (let length = 1; length < bytes.length; length += 7) {
      const connection = await openRaw(sluice.baseUrl);
      await connection.send(bytes.slice(0, length));
      connection.destroy();
    }
    await checkServes();
  });

  test('answers 413 in the middle of a chunked body that grows above the largest, and closes', async () => {
    const connection = await openRaw(sluice.baseUrl);
    const mebibyte = `100000\r\n${' '.repeat(0x100000)}\r\n`;
    await connection.send(head(line, host, json, chunked));
    for (let sent = 0; sent < bodies.bulkBytesMax; sent += 0x100000) await connection.send(mebibyte);
    assert.equal(connection.replies.length, 0);
    await connection.send('1\r\n \r\n');
    checkReply(await connection.reply(0), 'body_too_large');
    await checkClosed(connection, 1);
    await checkServes();
  });
});

describe('closes by its timer a connection that sends', () => {
  for (const row of timed) {
    test(row[0], async () => {
      await timedResults.get(row);
      await checkServes();
    });
  }
});

describe('after all that', () => {
  test('what was answered 200 is stored once, and nothing else is', async () => {
    const counts = await until(async () => {
      const rows = await sluice.rows<{ identity: string; stored: string }>(
        `SELECT identity, toString(count()) AS stored FROM events WHERE app_id = '${sluice.appId}' GROUP BY identity`,
      );
      const found = new Map(rows.map((row) => [row.identity, Number(row.stored)]));
      const missing = [...expectedByIdentity].some(
        ([identity, { count }]) => count === 1 && !found.has(identity),
      );
      return missing ? undefined : found;
    }, 'all accepted events are stored');
    const wrong: string[] = [];
    for (const [identity, { count, sentBy }] of expectedByIdentity) {
      const stored = counts.get(identity) ?? 0;
      counts.delete(identity);
      if (count === 'perhaps' ? stored > 1 : stored !== count) {
        wrong.push(`${sentBy}: stored ${stored} times, expected ${count}`);
      }
    }
    assert.deepEqual(wrong, []);
    assert.deepEqual([...counts], []);
  });

  test('the log is one JSON document per line and repeats nothing that was sent', () => {
    checkLogs(sluice, new RegExp(`${canary}|framing-\\d`));
  });
});
