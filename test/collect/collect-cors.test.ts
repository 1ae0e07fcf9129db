// What browsers need from POST /api/collect, with requests as they send them: preflights, and headers on every answer,
// refusals too. No other endpoint is open to pages.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bodies, receiving } from '../../src/contract/limits.js';
import { event, request } from '../harness/collect.js';
import { askRaw, openRaw, type RawReply } from '../harness/raw-http.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();

const page = ['Origin: https://shop.example', 'Cookie: session=1', 'Sec-Fetch-Mode: cors'];

/** One request of a page; the answer is read to its end. */
function ask(line: string, headers: readonly string[] = [], body = ''): Promise<RawReply> {
  const length = body === '' ? [] : [`Content-Length: ${Buffer.byteLength(body)}`];
  const head = [`${line} HTTP/1.1`, 'Host: a', ...page, ...length, ...headers, '', ''];
  return askRaw(sluice.baseUrl, head.join('\r\n') + body);
}

const preflight = [
  'Access-Control-Request-Method: POST',
  'Access-Control-Request-Headers: content-encoding,content-type',
];
const corsHeaders = ({ headers }: RawReply) =>
  [...headers.keys()].filter((name) => name.startsWith('access-control-'));

function assertOpen(reply: RawReply): void {
  assert.equal(reply.headers.get('access-control-allow-origin'), '*', reply.head);
  assert.equal(reply.headers.get('access-control-expose-headers'), 'Retry-After, Sluice-Ignored', reply.head);
  assert.ok(!reply.headers.has('access-control-allow-credentials'));
  assert.ok(!reply.headers.has('set-cookie'));
}

const message = () => JSON.stringify(request(sluice.appId, [event()]));

describe('POST /api/collect', () => {
  test('answers a preflight 204, for POST with JSON and gzip, and lets browsers remember it', async () => {
    const reply = await ask('OPTIONS /api/collect', preflight);
    assert.equal(reply.status, 204);
    assertOpen(reply);
    assert.equal(reply.headers.get('access-control-allow-methods'), 'POST');
    const allowed = (reply.headers.get('access-control-allow-headers') ?? '').toLowerCase().split(', ');
    assert.deepEqual(allowed.sort(), ['content-encoding', 'content-type']);
    assert.ok(Number(reply.headers.get('access-control-max-age')) >= 7200);
    assert.ok(!reply.headers.has('access-control-allow-private-network'));
    // RFC 9110, 8.6: no length in a 204.
    assert.ok(!reply.headers.has('content-length') && !reply.headers.has('content-type'), reply.head);
    assert.equal(reply.body, '');
  });

  test('answers the preflight of a page that reaches into a private network', async () => {
    const reply = await ask('OPTIONS /api/collect', [
      ...preflight,
      'Access-Control-Request-Private-Network: true',
    ]);
    assert.equal(reply.status, 204);
    assert.equal(reply.headers.get('access-control-allow-private-network'), 'true');
  });

  test('keeps the connection after a preflight, for the request that follows it', async () => {
    const body = message();
    const head = (line: string, length: number) =>
      `${line} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;
    const connection = await openRaw(sluice.baseUrl);
    await connection.send(head('OPTIONS /api/collect', 0));
    assert.equal((await connection.reply(0)).status, 204);
    await connection.send(head('POST /api/collect', body.length) + body);
    assert.equal((await connection.reply(1)).status, 200);
    connection.destroy();
  });

  for (const type of [
    'Content-Type: text/plain;charset=UTF-8',
    'Content-Type: application/json',
    'X-None: 1',
  ]) {
    test(`accepts what a page sends with ${type}, and ignores its cookies`, async () => {
      const reply = await ask('POST /api/collect', [type], message());
      assert.equal(reply.status, 200, reply.body);
      assertOpen(reply);
    });
  }

  const json = 'Content-Type: application/json';
  const refusals: readonly { name: string; status: number; ask: () => Promise<RawReply> }[] = [
    { name: 'no JSON', status: 400, ask: () => ask('POST /api/collect', [json], '{') },
    { name: 'an unknown app_id', status: 400, ask: () => ask('POST /api/collect', [json], '{"app_id":"7"}') },
    {
      name: 'another type',
      status: 400,
      ask: () => ask('POST /api/collect', ['Content-Type: text/html'], message()),
    },
    {
      name: 'another encoding',
      status: 415,
      ask: () => ask('POST /api/collect', [json, 'Content-Encoding: br'], message()),
    },
    {
      name: 'a body too large',
      status: 413,
      ask: () => ask('POST /api/collect', [json], 'x'.repeat(bodies.collectBytesMax + 1)),
    },
    {
      name: 'cookies that are too long',
      status: 431,
      ask: () =>
        ask('POST /api/collect', [json, `Cookie: ${'c'.repeat(receiving.headerBytesMax)}`], message()),
    },
    {
      name: 'ambiguous framing',
      status: 400,
      ask: () => ask('POST /api/collect', ['Content-Length: 2', 'Content-Length: 3'], ''),
    },
    { name: 'another method', status: 405, ask: () => ask('GET /api/collect') },
    { name: 'PUT', status: 405, ask: () => ask('PUT /api/collect', [json], '{}') },
    { name: 'a path below it', status: 404, ask: () => ask('POST /api/collect/x', [json], '{}') },
    {
      name: 'a preflight of a path below it',
      status: 404,
      ask: () => ask('OPTIONS /api/collect/x', preflight),
    },
  ];
  for (const { name, status, ask: send } of refusals) {
    test(`lets a page read that ${name} is answered ${status}`, async () => {
      const reply = await send();
      assert.equal(reply.status, status, reply.body);
      assertOpen(reply);
      if (status === 405) assert.equal(reply.headers.get('allow'), 'POST, OPTIONS');
    });
  }
});

describe('every other endpoint', () => {
  const others = [
    'POST /api/track',
    'POST /api/add_user_properties',
    'POST /api/v1/identify',
    'POST /api/public/v0/auth_token',
    'POST /api/public/v0/user_deletion',
    'GET /api/public/v0/deletion_status/x',
    'GET /health/live',
    'GET /openapi.json',
    'GET /nothing',
    'POST /api/collector',
  ];
  for (const line of others) {
    test(`${line} refuses a preflight and has no CORS header`, async () => {
      const path = line.split(' ')[1];
      const asked = await ask(`OPTIONS ${path}`, preflight);
      assert.ok([404, 405].includes(asked.status), `${asked.status}`);
      const answered = await ask(
        line,
        ['Content-Type: application/json'],
        line.startsWith('POST') ? '{}' : '',
      );
      assert.deepEqual([...corsHeaders(asked), ...corsHeaders(answered)], []);
    });
  }
});
