// The fuzzer itself: against a correct small server it finds nothing, and it finds every planted fault and reduces it.

import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { caseOf, describeFault, type Fault, runFuzz, type Target } from '../fuzz/run.js';
import { shrink } from '../fuzz/shrink.js';
import { createTally } from '../fuzz/tally.js';
import { bodyServer, listen } from '../harness/listen.js';

const context = {
  appId: '1000000001',
  basic: 'Basic eDp5',
  bearer: 'Bearer x',
  deletionRequestId: 'x',
  exportId: '0',
};

type Answer = { status: number; body: string };
/** What a server does wrong with a request; undefined: nothing. */
type Plant = (
  request: { method: string; body: Buffer; right: Answer },
  response: ServerResponse,
) => Answer | undefined;

/** Refuses everything, naming the first property as the service does. */
function rightAnswer(body: Buffer): Answer {
  const marker = /fv-[\w-]+-vf/.exec(body.toString('latin1'))?.[0];
  return { status: 400, body: JSON.stringify({ err: { field: `properties.${marker ?? ''}` } }) };
}

async function serve(plant: Plant): Promise<{ target: Target; stop: () => void }> {
  let dead = false;
  const server = bodyServer(
    (request, response, body) => {
      const right = rightAnswer(body);
      const answer = plant({ method: request.method ?? '', body, right }, response) ?? right;
      if (answer.status === 0) {
        dead = true;
        return server.closeAllConnections();
      }
      const text = answer.body;
      response.writeHead(answer.status, { 'Content-Length': Buffer.byteLength(text) }).end(text);
    },
    { keepAliveTimeout: 30_000 },
  );
  const { port, stop } = await listen(server);
  const target: Target = {
    host: '127.0.0.1',
    port,
    context,
    alive: () => !dead,
    restart: async () => {
      dead = false;
    },
  };
  return { target, stop };
}

async function faultFoundIn(plant: Plant, count = 4_000): Promise<Fault | undefined> {
  const { target, stop } = await serve(plant);
  try {
    return (await runFuzz(target, { seed: 3, count, quietMs: 4 })).fault;
  } finally {
    stop();
  }
}

test('finds nothing wrong with a correct server', async () => {
  const fault = await faultFoundIn(() => undefined, 1_500);
  assert.equal(fault, undefined, fault && describeFault(fault));
});

test('finds a 500, and the byte that causes it', async () => {
  const fault = await faultFoundIn(({ body }) =>
    body.includes(0xff) ? { status: 500, body: '{}' } : undefined,
  );
  assert.match(fault?.what ?? '', /^answers 500/);
  assert.equal(fault?.shown, 'alone');
  const sent = fault?.bytes.toString('latin1') ?? '';
  assert.ok(sent.includes('\xff') && sent.length < 80, describeFault(fault as Fault));
});

test('finds an answer that belongs to another request', async () => {
  let last: Answer | undefined;
  const fault = await faultFoundIn(({ body, right }) => {
    const answer = body.includes('[[[[') ? last : undefined;
    if (right.body.includes('fv-')) last = right;
    return answer;
  });
  assert.match(fault?.what ?? '', /^answers with what another request sent: fv-/);
});

test('finds two answers to one request', async () => {
  const fault = await faultFoundIn(({ body, right }, response) => {
    if (body.includes('null')) {
      response.socket?.write(
        `HTTP/1.1 400 Bad Request\r\nContent-Length: ${right.body.length}\r\n\r\n${right.body}`,
      );
    }
    return undefined;
  });
  assert.match(fault?.what ?? '', /answers to one request/);
});

test('finds what crashes the process', async () => {
  const fault = await faultFoundIn(({ body }) =>
    body.includes('1e999') ? { status: 0, body: '' } : undefined,
  );
  assert.match(fault?.what ?? '', /the process ended|nobody listens/);
  assert.equal(fault?.shown, 'alone');
  assert.match(fault?.bytes.toString('latin1') ?? '', /1e999/);
});

/** How deep the brackets of a body are, in strings or not. */
function bracketsIn(body: Buffer): number {
  let deepest = 0;
  for (const [brackets] of body.toString('latin1').matchAll(/(?:[[{]"?a?"?:?)+/g)) {
    deepest = Math.max(deepest, brackets.length);
  }
  return deepest;
}

test('finds a process that deep nesting crashes', async () => {
  const fault = await faultFoundIn(({ body }) =>
    bracketsIn(body) > 4_000 ? { status: 0, body: '' } : undefined,
  );
  assert.match(fault?.what ?? '', /hangs up on a whole request|the process ended|nobody listens/);
  assert.equal(fault?.shown, 'alone');
});

test('finds a server that hangs up on deep nesting but does not crash', async () => {
  const fault = await faultFoundIn(({ body }, response) => {
    if (bracketsIn(body) > 1_000) response.socket?.destroy();
    return undefined;
  });
  assert.equal(fault?.what, 'hangs up on a whole request');
  assert.equal(fault?.shown, 'alone');
});

test('finds a lone surrogate that is answered with a fault', async () => {
  const fault = await faultFoundIn(({ body }) =>
    /"[^"]*\\ud800/.test(body.toString('latin1')) ? { status: 500, body: '{}' } : undefined,
  );
  assert.match(fault?.what ?? '', /^answers 500/);
});

test('plants nesting of every kind above and below 64 KiB, and lone surrogates, in every document', () => {
  const names = new Set<string>();
  const seen = { small: 0, large: 0, arrays: 0, objects: 0, surrogates: 0, surrogateKeys: 0 };
  for (let number = 0; number < 6_000; number++) {
    const { name, pieces } = caseOf(context, 5, number);
    const body = Buffer.concat(pieces).toString('latin1');
    const depth = bracketsIn(Buffer.from(body, 'latin1'));
    if (depth > 200) {
      names.add(name);
      if (body.length > 64 * 1024) seen.large += 1;
      else seen.small += 1;
      if (body.includes('[[[[')) seen.arrays += 1;
      if (body.includes('{"a":{"a":')) seen.objects += 1;
    }
    if (/"\\ud800"/.test(body)) seen.surrogates += 1;
    if (/"\\ud800":1/.test(body)) seen.surrogateKeys += 1;
  }
  for (const [what, count] of Object.entries(seen)) assert.ok(count >= 5, `${what}: ${count}`);
  for (const name of [
    'an event',
    'events in bulk',
    'user properties in bulk',
    'an identification',
    'messages of a page',
    'a deletion request',
    'the beginning of a pairing',
  ]) {
    assert.ok(names.has(name), name);
  }
});

test('finds an acknowledged body that is not a document', async () => {
  const fault = await faultFoundIn(({ method, body }) =>
    method === 'POST' && body.includes('é') ? { status: 200, body: '{}' } : undefined,
  );
  assert.match(fault?.what ?? '', /acknowledges a body that is not a JSON/);
});

test('makes the same cases from the same seed, and different ones from another', () => {
  const bytesOf = (seed: number) =>
    Array.from({ length: 50 }, (_, number) =>
      Buffer.concat(caseOf(context, seed, number).pieces).toString('hex'),
    );
  assert.deepEqual(bytesOf(1), bytesOf(1));
  assert.ok(new Set([...bytesOf(1), ...bytesOf(2)]).size > 95);
});

test('shrinks an input to what fails', async () => {
  const bytes = Buffer.from(`${'x'.repeat(300)}A${'y'.repeat(200)}B${'z'.repeat(100)}`);
  const smallest = await shrink(bytes, async (candidate) => /A.*B/.test(candidate.toString('latin1')));
  assert.equal(smallest.toString(), 'AB');
});

test('counts acknowledged elements, each key once, and requests without an answer', () => {
  const tally = createTally();
  const post = (path: string, body: object) => {
    const text = JSON.stringify(body);
    return Buffer.from(`POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
  };
  const reply = (body: string, status = 200) => ({ status, head: '', headers: new Map(), body });
  const keyed = post('/api/track', { idempotency_key: 'k' });
  assert.equal(tally.count(keyed, [reply('{}')]), undefined);
  tally.count(keyed, [reply('{}')]);
  tally.count(post('/api/track?strict', { events: [{}, {}, {}] }), [
    reply('{"accepted":2,"rejected":1,"errors":[{"index":1}]}'),
  ]);
  tally.count(post('/api/track', { events: [{}, {}] }), [reply('{}', 429)]);
  tally.count(post('/api/v1/identify', {}), []);
  const answer = { messages: [{ status: 'stored' }, { status: 'rejected' }, { status: 'stored' }] };
  const messages = [{ type: 'event' }, { type: 'event' }, { type: 'identify' }];
  tally.count(post('/api/collect', { messages }), [reply(JSON.stringify(answer))]);
  assert.deepEqual(tally.accepted, { events: 4, user_properties: 0, user_identities: 1 });
  assert.deepEqual(tally.perhaps, { events: 0, user_properties: 0, user_identities: 1 });
});
