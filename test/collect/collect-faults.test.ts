// POST /api/collect when Redis is away, silent or full: the whole request is answered 503, with a code that says whether
// anything may have been stored, and that a page can read. Sent again, it results in exactly one row per message.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { createEnvironments } from '../harness/accounts.js';
import {
  answersOf,
  type CollectReply,
  collect,
  event,
  type Fields,
  identify,
  request,
  userProperties,
} from '../harness/collect.js';
import { assertDocumented } from '../harness/documented-answers.js';
import { paths, post, untilStored } from '../harness/ingestion.js';
import { until } from '../harness/wait.js';
import { redisWorld } from '../support/redis-world.js';

const { server, proxy, sluice } = await redisWorld('apiEnv', { BACKLOG_BYTES_MAX: '200000' });
const appIds = await createEnvironments(sluice, [[], [], [], []]);
let appId: string;
beforeEach(() => {
  appId = appIds.pop() ?? '';
});

/** Runs of events between calls that are limited one by one: several groups of one commit. */
const messages = (): Fields[] => [
  event({ event: '1' }),
  userProperties({ n: 1 }),
  event({ event: '2' }),
  event({ event: '3' }),
  identify('5', 'ada'),
  userProperties({ n: 2 }),
  event({ event: '4' }),
];

/** Asserts that the OpenAPI document has this answer; returns its status. */
function documented(method: string, path: string, reply: Pick<CollectReply, 'status' | 'headers' | 'text'>) {
  const { status, headers, text } = reply;
  assertDocumented(method, path, { status, headers: Object.fromEntries(headers), text });
  return status;
}

function assertUnavailable(reply: CollectReply, codes: readonly string[]): void {
  assert.equal(reply.status, 503, reply.text);
  assert.deepEqual(Object.keys(reply.json), ['err']);
  assert.ok(codes.includes(reply.json.err?.code ?? ''), reply.text);
  assert.match(reply.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
  documented('POST', '/api/collect', reply);
  assert.equal(reply.headers.get('access-control-allow-origin'), '*');
  assert.equal(reply.headers.get('access-control-expose-headers'), 'Retry-After, Sluice-Ignored');
}

async function sendUntilAnswered(body: Fields): Promise<CollectReply> {
  return until(async () => {
    const reply = await collect(sluice.baseUrl, body);
    return reply.status === 200 && reply;
  }, 'the request is answered');
}

async function assertStoredOnce(): Promise<void> {
  await untilStored(sluice);
  const events = await sluice.rows<{ event: string }>(
    `SELECT event FROM events WHERE app_id = '${appId}' ORDER BY segment, commit_number, row_number`,
  );
  assert.deepEqual(
    events.map(({ event: name }) => name),
    ['1', '2', '3', '4'],
  );
  const calls = await sluice.rows<{ n: string }>(
    `SELECT properties['n'] AS n FROM user_properties WHERE app_id = '${appId}' ORDER BY segment, commit_number, row_number`,
  );
  assert.deepEqual(
    calls.map(({ n }) => n),
    ['1', '2'],
  );
  const identities = await sluice.rows(`SELECT identity FROM user_identities WHERE app_id = '${appId}'`);
  assert.equal(identities.length, 1);
}

test('answers unknown when the reply is lost after the commit, and repeat when the same request is sent again', async () => {
  // Makes Redis know the script: it would refuse the first call.
  await sendUntilAnswered(request(appIds[0] ?? '', [event()]));
  const body = request(appId, messages());
  proxy.dropReplies();
  const reply = await collect(sluice.baseUrl, body);
  proxy.pass();
  assertUnavailable(reply, ['unknown']);
  const again = await sendUntilAnswered(body);
  assert.deepEqual(
    again.json.messages,
    messages().map((_, i) => ({ id: (body.messages as Fields[])[i]?.id, status: 'repeat' })),
  );
  await assertStoredOnce();
});

test('answers overloaded while Redis cannot be reached, and nothing of the request is stored', async () => {
  const body = request(appId, messages());
  await until(
    async () => (await collect(sluice.baseUrl, request(appId, [{}]))).status === 200,
    'the environment is known',
  );
  await server.stop();
  await until(
    async () => (await fetch(`${sluice.baseUrl}/health/ready`)).status === 503,
    'the API has noticed',
  );
  assertUnavailable(await collect(sluice.baseUrl, body), ['overloaded']);
  const event = { app_id: appId, event: 'away', identity: 'ada' };
  assert.equal(documented('POST', paths.track, await post(sluice.baseUrl, paths.track, event)), 503);
  const ready = await fetch(`${sluice.baseUrl}/health/ready`);
  const { status, headers } = ready;
  assert.equal(documented('GET', '/health/ready', { status, headers, text: await ready.text() }), 503);
  await server.restart();
  const again = await sendUntilAnswered(body);
  assert.ok(
    again.json.messages?.every(({ status }) => status === 'stored'),
    again.text,
  );
  await assertStoredOnce();
});

test('answers overloaded to a whole request while the backlog is full, and accepts it when there is room', async () => {
  await sendUntilAnswered(request(appId, [{}]));
  const [worker] = sluice.workers;
  worker?.sigstop();
  try {
    const filling = Array.from({ length: 400 }, () =>
      event({ user_id: '9', properties: { text: 'x'.repeat(1000) } }),
    );
    // Fills the backlog. The next request needs more than the rest of it, but has one small message that would fit alone.
    for (let i = 0; i < filling.length; i += 100) {
      const reply = await collect(sluice.baseUrl, request(appIds[0] ?? appId, filling.slice(i, i + 100)));
      assert.ok([200, 503].includes(reply.status), reply.text);
    }
    const large = event({
      event: '5',
      properties: Object.fromEntries(Array.from({ length: 200 }, (_, i) => [i, 'x'.repeat(900)])),
    });
    const whole = request(appId, [...messages(), large]);
    const reply = await until(async () => {
      const refused = await collect(sluice.baseUrl, whole);
      return refused.json.err?.code !== 'unknown' && refused;
    }, 'Redis says whether there is room');
    assertUnavailable(reply, ['overloaded']);
  } finally {
    worker?.sigcont();
  }
  await sendUntilAnswered(request(appId, messages()));
  await assertStoredOnce();
});

test('answers a request that has only bad messages, whatever the state of Redis', async () => {
  await sendUntilAnswered(request(appId, [{}]));
  proxy.cut();
  const answers = await answersOf(sluice.baseUrl, appId, [{}, event({ event: '' })]);
  proxy.pass();
  assert.deepEqual(
    answers.map(({ status }) => status),
    ['rejected', 'rejected'],
  );
});
