// The client library's endpoint needs no credentials. Limits by user, environment and address, and the check of origins,
// keep strangers from filling an environment through it.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { addressAllowances, collectEventsTogetherMax, rateLimits } from '../../src/contract/limits.js';
import { createByteAllowance } from '../../src/http/endpoints/byte-allowance.js';
import { createEnvironment } from '../harness/accounts.js';
import {
  answersOf,
  collect,
  event,
  type Fields,
  identify,
  type MessageAnswer,
  newId,
  request,
  userProperties,
} from '../harness/collect.js';
import { administer } from '../harness/deletion.js';
import { untilStored } from '../harness/ingestion.js';
import { until } from '../harness/wait.js';
import { forwardLimitClock } from '../support/limit-clock.js';
import { ownSluice } from '../support/sluice.js';

const addressBytesMax = 1024 * 1024;

const sluice = await ownSluice({
  apiProcesses: 2,
  apiEnv: {
    COLLECT_ADDRESS_BYTES_MAX: String(addressBytesMax),
    ADDRESS_BYTES_MAX: String(16 * 1024 ** 2),
    TRUSTED_PROXIES: '127.0.0.1',
  },
});

let callers = 0;
/** Another address each time. */
const caller = () => {
  callers += 1;
  return { 'x-forwarded-for': `203.0.${callers >> 8}.${callers & 255}` };
};

async function send(appId: string, messages: readonly unknown[], at = 0): Promise<readonly MessageAnswer[]> {
  const reply = await collect(sluice.api[at]?.baseUrl ?? '', request(appId, messages), caller());
  assert.equal(reply.status, 200, reply.text);
  return reply.json.messages ?? [];
}

const count = (answers: readonly MessageAnswer[], status: MessageAnswer['status']) =>
  answers.filter((answer) => answer.status === status).length;

async function storedOf(appId: string): Promise<number> {
  await untilStored(sluice);
  const [row] = await sluice.rows<{ n: string }>(
    `SELECT toString(count()) AS n FROM events WHERE app_id = '${appId}'`,
  );
  return Number(row?.n);
}

describe('the limits of the client library', () => {
  test('keep a flood of ever new users within the limit of the environment, over all processes', async () => {
    const max = 1_500;
    const appId = await createEnvironment(sluice, '--limit', `collect_app=${max}`);
    const flood = (at: number) =>
      Array.from({ length: 500 }, (_, n) => event({ user_id: String(10_000 * at + n) }));
    const answers = (
      await Promise.all(Array.from({ length: 8 }, (_, at) => send(appId, flood(at), at % 2)))
    ).flat();
    assert.equal(count(answers, 'stored'), max);
    assert.equal(count(answers, 'limited'), 8 * 500 - max);
    for (const { status, code, retry_after } of answers) {
      if (status !== 'limited') continue;
      assert.equal(code, 'rate_limited');
      assert.ok(Number(retry_after) >= 1 && Number(retry_after) <= 61);
    }
    assert.equal(await storedOf(appId), max);
  });

  test('limit one user until the window has passed, and nobody else', async () => {
    const max = 50;
    const appId = await createEnvironment(sluice, '--limit', `collect_user=${max}`);
    const of = (user: Fields) => Array.from({ length: 200 }, () => event(user));
    const first = await send(appId, of({ user_id: '1' }));
    const stored = count(first, 'stored');
    assert.ok(stored <= max && stored > max - collectEventsTogetherMax, `${stored}`);
    assert.equal(count(await send(appId, [event({ user_id: '1', identity: 'ada' })], 1), 'stored'), 1);
    const others = await send(
      appId,
      Array.from({ length: 200 }, (_, n) => event({ user_id: String(n + 2) })),
    );
    assert.equal(count(others, 'stored'), 200);
    const alone = await send(appId, of({ user_id: '1' }).slice(0, max - stored), 1);
    assert.equal(count(alone, 'stored'), max - stored, 'what is left of the limit can be used');
    assert.equal(count(await send(appId, [event({ user_id: '1' })]), 'limited'), 1);
    const mixed = await send(appId, [
      event({ user_id: '900' }),
      event({ user_id: '1' }),
      event({ user_id: '900' }),
    ]);
    const statuses = mixed.map(({ status }) => status);
    assert.deepEqual(statuses, ['stored', 'limited', 'stored'], 'a limited user among others is limited');
    await forwardLimitClock(sluice, 62);
    assert.equal(count(await send(appId, [event({ user_id: '1' })]), 'stored'), 1);
  });

  test('do not apply to repeats, which take no room', async () => {
    const appId = await createEnvironment(sluice, '--limit', 'collect_user=20');
    const messages = Array.from({ length: 20 }, () => event());
    assert.equal(count(await send(appId, messages), 'stored'), 20);
    for (const at of [0, 1]) assert.equal(count(await send(appId, messages, at), 'repeat'), 20);
    assert.equal(count(await send(appId, [event()]), 'limited'), 1);
  });

  test('never let a later call that sets properties, or identifies, pass an earlier one', async () => {
    const appId = await createEnvironment(sluice, '--limit', 'collect_app=25', '--limit', 'collect_user=23');
    const user = { user_id: '7' };
    const messages = [
      ...Array.from({ length: 19 }, () => event(user)),
      userProperties({ a: 1 }, user),
      ...Array.from({ length: 20 }, () => event(user)),
      ...Array.from({ length: 6 }, (_, n) => userProperties({ a: n }, user)),
      identify('7', 'ada'),
      userProperties({ a: 9 }, user),
    ];
    const statuses = (await send(appId, messages)).map(({ status }) => status);
    assert.deepEqual(statuses.slice(0, 20), Array(20).fill('stored'));
    assert.deepEqual(statuses.slice(20, 40), Array(20).fill('limited'), 'twenty events do not fit');
    const calls = statuses.slice(40);
    assert.deepEqual(calls, [...Array(3).fill('stored'), ...Array(3).fill('limited'), 'stored', 'limited']);

    // Five more messages fit. The events before the identification are limited as one group; the identification is not.
    const other = await createEnvironment(
      sluice,
      '--limit',
      'collect_app=25',
      '--limit',
      'collect_user=none',
    );
    await send(other, messages.slice(0, 20));
    const rest = [
      ...Array.from({ length: 8 }, () => event(user)),
      identify('7', 'ada'),
      userProperties({ a: 1 }, { identity: 'ada' }),
    ];
    const after = (await send(other, rest)).map(({ status }) => status);
    assert.deepEqual(after, [...Array(8).fill('limited'), 'stored', 'stored']);
  });

  test('are 3,000 messages a minute for a user and 60,000 for an environment, and can be switched off', async () => {
    const appId = await createEnvironment(sluice);
    assert.deepEqual([rateLimits.collect_user.max, rateLimits.collect_app.max], [3_000, 60_000]);
    const batch = () => Array.from({ length: 1_000 }, () => event({ user_id: '9' }));
    for (let n = 0; n < 3; n += 1) assert.equal(count(await send(appId, batch()), 'stored'), 1_000);
    assert.equal(count(await send(appId, [event({ user_id: '9' })]), 'limited'), 1);
    const open = await createEnvironment(
      sluice,
      '--limit',
      'collect_user=none',
      '--limit',
      'collect_app=none',
    );
    for (let n = 0; n < 4; n += 1) assert.equal(count(await send(open, batch()), 'stored'), 1_000);
  });
});

describe('the bytes of an address', () => {
  test('are refused beyond the limit before anything is parsed, and nobody else is', async () => {
    const appId = await createEnvironment(sluice);
    const attacker = caller();
    const body = JSON.stringify(request(appId, [event({ properties: { a: 'x'.repeat(1_000) } })])).padEnd(
      // Two of these leave so little that no pause of the machine lets a third one pass.
      500_000,
    );
    const statuses: number[] = [];
    for (let n = 0; n < 3; n += 1) statuses.push((await collect(sluice.baseUrl, body, attacker)).status);
    assert.deepEqual(statuses, [200, 200, 429]);
    const nonsense = await collect(sluice.baseUrl, '['.repeat(500_000), attacker);
    assert.equal(nonsense.status, 429, 'the body is not even parsed');
    assert.equal(nonsense.json.err?.code, 'rate_limited');
    const seconds = Number(nonsense.headers.get('retry-after'));
    assert.ok(seconds >= 1 && seconds <= 60, `${seconds}`);
    assert.equal(nonsense.headers.get('access-control-allow-origin'), '*');
    // The proxy adds its entry to the right of what the attacker makes up.
    const forged = { 'x-forwarded-for': `198.51.100.1, ${attacker['x-forwarded-for']}` };
    assert.equal((await collect(sluice.baseUrl, body, forged)).status, 429);
    assert.equal((await collect(sluice.baseUrl, body, caller())).status, 200);
    const fits = JSON.stringify(request(appId, [event()]));
    assert.equal((await collect(sluice.baseUrl, fits, attacker)).status, 200, 'what is left can be used');
  });

  test('count after inflation at the endpoints of servers, except with a key, and those of small bodies do not', async () => {
    const appId = await createEnvironment(sluice);
    const { write_key: key } = (await sluice.admin('write-keys', 'create', appId)) as { write_key: string };
    // An API process that knows an environment which is created later knows the key too.
    await createEnvironment(sluice);
    const noise = randomBytes(60_000).toString('base64');
    const bomb = gzipSync(`["${noise}${' '.repeat(9_000_000)}`);
    const attacker = caller();
    const send = async (path: string, body: Buffer | string, headers: object) => {
      const reply = await fetch(`${sluice.baseUrl}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body,
      });
      await reply.arrayBuffer();
      return reply.status;
    };
    const gzip = { 'content-encoding': 'gzip' };
    assert.equal(await send('/api/track', bomb, { ...attacker, ...gzip }), 400);
    const path = '/api/add_user_properties';
    assert.equal(await send(path, bomb, { ...attacker, ...gzip }), 429, 'one allowance for all endpoints');
    const small = JSON.stringify({ app_id: appId, event: 'Small', identity: 'ada' });
    for (let n = 0; n < 5; n += 1) assert.equal(await send('/api/track', small, attacker), 200);
    const authorization = `Bearer ${key}`;
    assert.equal(await send('/api/track', bomb, { ...attacker, ...gzip, authorization }), 400);
    const wrong = { authorization: 'Bearer of-somebody' };
    assert.equal(await send('/api/track', bomb, { ...attacker, ...gzip, ...wrong }), 429);
    assert.equal(await send('/api/track', bomb, { ...caller(), ...gzip }), 400, 'another address');
  });

  test('fill up steadily, and are remembered for a bounded number of addresses', () => {
    let nowMs = 1_000_000;
    const allowance = createByteAllowance(() => nowMs);
    const limit = { max: 1_000, windowMs: 60_000 };
    assert.equal(allowance.take('a', 1_000, limit), 0, 'all at once');
    assert.equal(allowance.take('a', 1, limit), 60, 'a byte is back after 60 ms');
    assert.equal(allowance.take('b', 500, limit), 0);
    nowMs += 30_000;
    assert.equal(allowance.take('a', 500, limit), 0);
    assert.ok(allowance.take('a', 1, limit) > 0);
    let taken = 0;
    for (let ms = 0; ms < 600_000; ms += 1_000, nowMs += 1_000) {
      for (let n = 0; n < 50; n += 1) if (allowance.take('a', 7, limit) === 0) taken += 7;
    }
    assert.ok(taken <= 10_000 && taken > 9_500, `${taken} bytes in ten minutes`);
    const { keptMax } = addressAllowances;
    for (let n = 0; n < 2 * keptMax; n += 1) assert.equal(allowance.take(`n${n}`, 1_000, limit), 0);
    for (const n of [1.2 * keptMax, 2 * keptMax - 1])
      assert.ok(allowance.take(`n${n}`, 1, limit) > 0, 'the latest are remembered');
    assert.equal(allowance.take(`n${keptMax - 1}`, 1, limit), 0, 'the earliest are forgotten');
  });
});

describe('origins', () => {
  const from = (origin: string | undefined) => (origin === undefined ? caller() : { ...caller(), origin });
  const statusOf = async (appId: string, origin: string | undefined, at = 0) =>
    (await collect(sluice.api[at]?.baseUrl ?? '', request(appId, [event({ id: newId() })]), from(origin)))
      .status;

  test('that are listed may send, others store nothing and can read why', async () => {
    const appId = await createEnvironment(
      sluice,
      ...['--origin', 'https://Shop.example.com', '--origin', 'http://localhost:3000', '--origin', 'null'],
    );
    const allowed = ['https://shop.example.com', 'http://localhost:3000', 'null'];
    for (const origin of allowed)
      for (const at of [0, 1]) assert.equal(await statusOf(appId, origin, at), 200);
    const others = [
      undefined,
      'https://evil.example',
      'http://shop.example.com',
      'https://shop.example.com:8443',
      'https://shop.example.com.evil.example',
      'https://evil.shop.example.com',
      'https://shop.example.com/',
      'https://shop.example.com, https://evil.example',
      '__proto__',
      'apps',
    ];
    for (const origin of others) assert.equal(await statusOf(appId, origin), 403, origin);
    const reply = await collect(sluice.baseUrl, request(appId, [event()]), from('https://evil.example'));
    assert.equal(reply.json.err?.code, 'origin_not_allowed');
    assert.equal(reply.headers.get('access-control-allow-origin'), '*');
    assert.equal(await storedOf(appId), 6);
    await until(
      async () => ((await sluice.admin('rejected', 'list', appId)) as unknown[]).length > 0,
      'an administrator sees that somebody was refused',
    );
  });

  test('any, none and apps work as named, also over /admin/v1', async () => {
    const appId = await createEnvironment(sluice, '--origin', 'apps');
    assert.deepEqual(
      [await statusOf(appId, undefined), await statusOf(appId, 'https://a.example')],
      [200, 403],
    );
    const set = async (body: object, origin: string | undefined, wanted: number) => {
      const { origins } = await administer<{ origins?: string[] }>(
        sluice,
        'PATCH',
        `/environments/${appId}`,
        body,
      );
      await until(async () => (await statusOf(appId, origin)) === wanted, 'the API knows the setting');
      return origins;
    };
    assert.deepEqual(await set({ origins: [] }, undefined, 403), []);
    assert.equal(await statusOf(appId, 'https://a.example'), 403);
    assert.deepEqual(await set({ validation: 'strict' }, undefined, 403), [], 'other settings leave it');
    assert.equal(await set({ origins: 'any' }, undefined, 200), undefined);
    assert.equal(await statusOf(appId, 'https://a.example'), 200);
    assert.deepEqual(await set({ origins: ['none'] }, undefined, 403), []);
    for (const bad of [
      '*',
      'https://*.example.com',
      'shop.example.com',
      'https://a.example/x',
      'ftp://a',
      'any',
      '',
    ]) {
      const options = ['--origin', bad, '--origin', 'https://b.example'];
      await assert.rejects(
        sluice.admin('environments', 'set', appId, ...options),
        /an origin must look like/,
        bad,
      );
    }
  });

  test('no server endpoint asks for an origin', async () => {
    const appId = await createEnvironment(sluice, '--origin', 'none');
    const reply = await fetch(`${sluice.baseUrl}/api/track`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ app_id: appId, event: 'x', identity: 'ada' }),
    });
    assert.equal(reply.status, 200);
    await assert.rejects(answersOf(sluice.baseUrl, appId, [event()]), /403/);
  });
});
