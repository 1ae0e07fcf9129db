// Well-formed requests to every public endpoint, from which the mutations start. Unmutated, most are accepted; the others are refused for
// what their names say.

import { gzipSync } from 'node:zlib';

export type RequestContext = {
  readonly appId: string;
  /** `Basic …` and `Bearer …` of an account that has no data. */
  readonly basic: string;
  readonly bearer: string;
  readonly deletionRequestId: string;
  readonly exportId: string;
};

export type ValidRequest = {
  readonly name: string;
  /** `id` differs in every case. */
  readonly bytes: (id: string) => Buffer;
};

const host = 'Host: sluice.test';
const json = 'Content-Type: application/json';

function request(line: string, headers: readonly string[], body: string | Buffer = ''): Buffer {
  const length = line.startsWith('POST') ? [`Content-Length: ${Buffer.byteLength(body)}`] : [];
  const head = [`${line} HTTP/1.1`, host, ...headers, ...length].join('\r\n');
  return Buffer.concat([Buffer.from(`${head}\r\n\r\n`), Buffer.from(body)]);
}

const costlyToRead = `[${'{},'.repeat(60_000)}1]`;

const post = (path: string, body: object, headers: readonly string[] = [json]) =>
  request(`POST ${path}`, headers, JSON.stringify(body));

function inChunks(path: string, body: object): Buffer {
  const text = JSON.stringify(body);
  const half = Math.floor(text.length / 2);
  const chunks = [text.slice(0, half), text.slice(half)].map(
    (chunk) => `${Buffer.byteLength(chunk).toString(16)}\r\n${chunk}\r\n`,
  );
  const head = [`POST ${path} HTTP/1.1`, host, json, 'Transfer-Encoding: chunked'].join('\r\n');
  return Buffer.from(`${head}\r\n\r\n${chunks.join('')}0\r\n\r\n`);
}

export function validRequests({
  appId,
  basic,
  bearer,
  deletionRequestId,
  exportId,
}: RequestContext): readonly ValidRequest[] {
  const app_id = appId;
  const event = (id: string) => ({ event: 'Fuzzed', identity: `f-${id}@example.com` });
  const full = (id: string) => ({
    event: 'Order "Completed" \\ Käse 🧀',
    user_id: '9007199254740991',
    session_id: `s-${id}`,
    timestamp: '2026-02-28T23:59:59.999+05:30',
    idempotency_key: `key-${id}`,
    properties: { a: 1.5e-3, list: ['x', 2, 'ü'], empty: '', 'a key\n': 'b' },
  });
  const message = (id: string, more: object) => ({ id: `m-${id}`, user_id: '7', ...more });
  const collected = (id: string) => ({
    app_id,
    sent_at: '2026-03-01T12:30:05.000Z',
    messages: [
      message(`${id}a`, { type: 'event', event: 'Opened', session_id: 's', properties: { p: 1 } }),
      message(`${id}b`, { type: 'identify', identity: `i-${id}@example.com` }),
      message(`${id}c`, {
        type: 'user_properties',
        identity: `i-${id}@example.com`,
        properties: { plan: 'pro' },
      }),
    ],
  });
  const deletion = '/api/public/v0';
  const authorization = `Authorization: ${bearer}`;
  const all: Readonly<Record<string, (id: string) => Buffer>> = {
    'an event': (id) => post('/api/track', { app_id, ...event(id) }),
    'an event with every field': (id) => post('/api/track', { app_id, ...full(id) }),
    'events in bulk': (id) =>
      post('/api/track', { app_id, events: [event(id), full(`${id}b`), event(`${id}c`)] }),
    'events in strict bulk': (id) =>
      post('/api/track?strict=1', { app_id, events: [event(id), full(`${id}b`)] }),
    'an event in chunks': (id) => inChunks('/api/track', { app_id, ...event(id) }),
    'an event, compressed': (id) =>
      request(
        'POST /api/track',
        [json, 'Content-Encoding: gzip'],
        gzipSync(JSON.stringify({ app_id, ...full(id) })),
      ),
    'a refused event': (id) => post('/api/track', { app_id, ...event(id), properties: { [id]: [[]] } }),
    'a large bulk request': (id) =>
      post('/api/track', {
        app_id,
        events: Array.from({ length: 20 }, (_, n) => ({
          ...event(`${id}-${n}`),
          properties: { list: ['x'.repeat(4_000), n] },
        })),
      }),
    'a refused event that is costly to read': () => request('POST /api/track', [json], costlyToRead),
    'a refused event that is costly to read, compressed': () =>
      request('POST /api/track', [json, 'Content-Encoding: gzip'], gzipSync(costlyToRead)),
    'user properties': (id) =>
      post('/api/add_user_properties', { app_id, identity: `f-${id}`, properties: { email: 'a@b.c' } }),
    'user properties in bulk': (id) =>
      post('/api/add_user_properties', {
        app_id,
        users: [1, 2].map((n) => ({ identity: `f-${id}-${n}`, properties: { n } })),
      }),
    'an identification': (id) =>
      post('/api/v1/identify', { app_id, user_id: '12345', identity: `f-${id}@example.com` }),
    'messages of a page': (id) =>
      post('/api/collect', collected(id), [
        'Content-Type: text/plain;charset=UTF-8',
        'Origin: https://shop.test',
      ]),
    'messages of a phone': (id) => post('/api/collect', collected(id)),
    'a batch of Segment’s messages': (id) =>
      post(
        '/v1/batch',
        {
          batch: [
            {
              type: 'track',
              event: 'Opened',
              anonymousId: `a-${id}`,
              messageId: `sm-${id}`,
              properties: { a: [1, 'b'] },
            },
            {
              type: 'identify',
              userId: `f-${id}@example.com`,
              anonymousId: `a-${id}`,
              traits: { plan: 'pro', at: null },
            },
            {
              type: 'page',
              name: 'Start',
              userId: `f-${id}`,
              context: { page: { url: 'https://shop.test/' } },
            },
          ],
          sentAt: '2026-03-01T12:30:05.000Z',
        },
        [json, `Authorization: Basic ${btoa(`${appId}:`)}`],
      ),
    'a message of Segment’s library for pages': (id) =>
      post(
        '/v1/t',
        { writeKey: appId, event: 'Opened', anonymousId: `a-${id}`, timestamp: '2026-03-01T12:30:05Z' },
        ['Content-Type: text/plain', 'Origin: https://shop.test'],
      ),
    'a preflight': () =>
      request('OPTIONS /api/collect', [
        'Origin: https://shop.test',
        'Access-Control-Request-Method: POST',
        'Access-Control-Request-Headers: content-type',
      ]),
    'the beginning of a pairing': () => post('/api/visualizer/pairings', { app_id }),
    'the end of a pairing': () =>
      post('/api/visualizer/pairings/stop', { app_id, pairing: `slp_${'A'.repeat(43)}` }),
    'a token request': () => request(`POST ${deletion}/auth_token`, [`Authorization: ${basic}`]),
    'a token request with a wrong key': () =>
      request(`POST ${deletion}/auth_token`, [`Authorization: Basic ${btoa(`${appId}:wrong`)}`]),
    'a deletion request': () =>
      post(`${deletion}/user_deletion`, { users: [{ user_id: 4 }, { identity: 'nobody@example.com' }] }, [
        json,
        authorization,
      ]),
    'a deletion request with a reference': (id) =>
      post(`${deletion}/user_deletion`, { users: [{ anonymous_id: `a-${id}` }], reference: `r-${id}` }, [
        json,
        authorization,
      ]),
    'a deletion request without a token': () =>
      post(`${deletion}/user_deletion`, { users: [{ user_id: 4 }] }),
    'the status of a deletion': () =>
      request(`GET ${deletion}/deletion_status/${deletionRequestId}`, [authorization]),
    'the status of no deletion': () => request(`GET ${deletion}/deletion_status/nothing`, [authorization]),
    'the users of a deletion': () =>
      request(`GET ${deletion}/deletion_status/${deletionRequestId}/users?cursor=0`, [authorization]),
    'a look-up in a deletion': () =>
      post(
        `${deletion}/deletion_status/${deletionRequestId}/lookup`,
        { users: [{ user_id: 4 }, { identity: 'nobody@example.com' }, { anonymous_id: 'a' }] },
        [json, authorization],
      ),
    'the certificate of a deletion': () =>
      request(`GET ${deletion}/deletion_status/${deletionRequestId}/certificate`, [authorization]),
    'a list of deletions': () =>
      request(`GET ${deletion}/user_deletions?state=complete&reference=r%20%C3%BC&cursor=MQ`, [
        authorization,
      ]),
    'the key of certificates': () => request(`GET ${deletion}/signing_key`, []),
    'an export': () =>
      post(`${deletion}/user_export`, { users: [{ user_id: 4 }, { identity: 'nobody@example.com' }] }, [
        json,
        authorization,
      ]),
    'the status of an export': () => request(`GET ${deletion}/user_export/${exportId}`, [authorization]),
    // Not of an existing export, since ClickHouse may need long for its data.
    'the data of no export': () =>
      request(`GET ${deletion}/user_export/nothing/data`, [authorization, 'Accept-Encoding: gzip']),
    'a suppression': (id) =>
      post(
        `${deletion}/user_suppression`,
        { users: [{ identity: `q-${id}` }, { user_id: 4 }], suppress: true },
        [json, authorization],
      ),
    'a look-up of a suppressed user': () =>
      request(`GET ${deletion}/user_suppression?identity=q%40example.com`, [authorization]),
    'a look-up of suppressed users': (id) =>
      post(
        `${deletion}/user_suppression/lookup`,
        { users: [{ identity: `q-${id}` }, { user_id: 4 }, { anonymous_id: 'a' }] },
        [json, authorization],
      ),
    'the number of suppressed users': () => request(`GET ${deletion}/user_suppression`, [authorization]),
    'a check of liveness': () => request('GET /health/live', []),
    'a check of readiness': () => request('GET /health/ready', ['Connection: keep-alive']),
    'the OpenAPI document': () => request('GET /openapi.json', ['Accept: */*']),
    'the script of the client library': () =>
      request('GET /sdk.js', ['Accept-Encoding: gzip, br', 'If-None-Match: "x"']),
    'an unknown path': () => post('/api/unknown', { app_id }),
    'a wrong method': () => request('DELETE /api/track', []),
  };
  return Object.entries(all).map(([name, bytes]) => ({ name, bytes }));
}
