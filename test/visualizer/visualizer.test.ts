// The Event Visualizer from outside: a device pairs at one API process, the page is served by another one.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { accessWatch, bodies, connections, lengths, visualizer } from '../../src/contract/limits.js';
import type { Role } from '../../src/contract/roles.js';
import { pairingIdOfSecret } from '../../src/insights/visualizer/pairings.js';
import { Redis } from '../../src/packages/ioredis.js';
import { visualizerKeys } from '../../src/redis/keys.js';
import type { AuditEntry } from '../../src/registry/audit/read.js';
import { openDescriptors } from '../fuzz/process-figures.js';
import { createTestAccount } from '../harness/accounts.js';
import type { ApiHandle } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { cookieAt, signedIn } from '../support/console.js';
import { ownSluice } from '../support/sluice.js';
import { filesWith } from '../support/traces.js';
import {
  beginPairing,
  collect,
  type LivePage,
  openLivePage,
  type Pairing,
  post,
  stopPairing,
} from '../support/visualizer.js';

const pages: LivePage[] = [];

const sluice = await ownSluice({ workers: 0, apiProcesses: 2 });
const [device, admin] = sluice.api as [ApiHandle, ApiHandle];
const redis = new Redis(sluice.redisUrl);
redis.on('error', () => undefined);

after(async () => {
  for (const { socket } of pages) socket.terminate();
  redis.disconnect();
});

function openPage(code: string, token = sluice.adminToken): LivePage {
  const page = openLivePage(admin.adminUrl, { token, code });
  pages.push(page);
  return page;
}

async function pair(): Promise<Pairing & { readonly page: LivePage }> {
  const pairing = await beginPairing(device.baseUrl, sluice.appId);
  const page = await openAnswered({ token: sluice.adminToken, code: pairing.code });
  await page.heard('paired');
  return { ...pairing, page };
}

/** Opens a page that is paired or refused. If Redis answers too late for that, it is opened again. */
function openAnswered(hello: unknown): Promise<LivePage> {
  const opened = async () => {
    const page = openLivePage(admin.adminUrl, hello);
    const [first] = await until(() => page.said.length > 0 && page.said, 'the service says something');
    if (first?.type !== 'refused') pages.push(page);
    return first?.reason !== 'unavailable' && page;
  };
  return until(opened, 'the page is paired or refused');
}

function event(name: string, fields: object = {}) {
  return { type: 'event', id: randomUUID(), user_id: '7', session_id: 's1', event: name, ...fields };
}

const send = (messages: readonly object[], pairing?: string) =>
  collect(device.baseUrl, sluice.appId, messages, pairing);
/** Sends until an answer says that the pairing has ended. An answer that waited too long for Redis does not say so. */
const untilEnded = (pairing: string, appId = sluice.appId) =>
  until(
    async () => (await collect(device.baseUrl, appId, [event('ended?')], pairing)).body.pairing === 'ended',
    'the device learns that the pairing has ended',
  );
const keyOf = (pairing: string) => visualizerKeys.pairing(String(pairingIdOfSecret(pairing)));

async function forgetFailures(): Promise<void> {
  const keys = await redis.keys(visualizerKeys.failures('*'));
  if (keys.length > 0) await redis.del(...keys);
}

const personOf = (role: Role, accountId: string) =>
  signedIn(sluice, `${role}-${accountId}@example.com`, role, accountId);

function openAs(
  person: Awaited<ReturnType<typeof personOf>> | undefined,
  code: string,
  headers: Readonly<Record<string, string>> = {},
): LivePage {
  const cookie = `${cookieAt(admin.adminUrl, 'session')}=${person?.cookies.get(cookieAt(sluice.adminUrl, 'session')) ?? 'none'}`;
  const page = openLivePage(admin.adminUrl, { code }, { ...headers, cookie });
  pages.push(page);
  return page;
}

test('people with the right to watch need no token for devices of their own account, while they are signed in', async () => {
  const other = await createTestAccount(sluice, 'Other');
  const own = String(sluice.bootstrap.account_id);
  const { pairing, code } = await beginPairing(device.baseUrl, sluice.appId);
  const refusals: [string, Awaited<ReturnType<typeof personOf>> | undefined][] = [
    ['signed_out', undefined],
    ['forbidden', await personOf('viewer', own)],
    ['wrong_code', await personOf('administrator', other.accountId)],
  ];
  for (const [reason, person] of refusals)
    assert.equal((await openAs(person, code).heard('refused')).reason, reason);
  assert.equal((await redis.hget(keyOf(pairing), 'state')) ?? '', 'waiting', 'nobody has entered the code');
  const person = await personOf('privacy', own);
  // As from a page whose own host name was pointed to this address (DNS rebinding).
  const host = `elsewhere.example:${new URL(admin.adminUrl).port}`;
  assert.equal((await openAs(person, code, { host }).heard('refused')).reason, 'signed_out');
  const page = openAs(person, code);
  assert.equal((await page.heard('paired')).app_id, sluice.appId);
  await send([event('Seen by a person')], pairing);
  await page.untilShown(1);
  await (await openAnswered({ token: sluice.adminToken, code })).heard('paired');
  const entries = (await sluice.admin('audit', 'list')) as AuditEntry[];
  const watched = entries.filter(({ action }) => action === 'watch_device');
  assert.ok(watched.every(({ app_id, outcome }) => app_id === sluice.appId && outcome === 'done'));
  const watchers = watched.map(({ actor, actor_name }) => (actor === 'person' ? actor_name : actor));
  assert.deepEqual(watchers, ['admin_token', `privacy-${own}@example.com`]);
  const colleague = await personOf('administrator', own);
  const second = openAs(colleague, code);
  await second.heard('paired');
  // Less than the interval at which the service checks by itself.
  const soonMs = accessWatch.askedEveryMs - 500;
  assert.equal((await person.ask('DELETE', '/session')).status, 200);
  assert.equal((await page.heard('refused', soonMs)).reason, 'signed_out');
  await send([event('Seen by the colleague')], pairing);
  await second.untilShown(1);
  const requireFactor = (second_factor: string) =>
    sluice.admin('accounts', 'set', own, '--second-factor', second_factor);
  await requireFactor('required');
  assert.equal((await second.heard('refused', soonMs)).reason, 'signed_out');
  await requireFactor('optional');
  const third = openAs(colleague, code);
  await third.heard('paired');
  const { person: self } = (await colleague.ask('GET', '/session')).body as { person: { person_id: string } };
  await sluice.admin('people', 'remove', self.person_id);
  assert.equal((await third.heard('refused', soonMs)).reason, 'signed_out');
  await send([event('Seen by nobody')], pairing);
  assert.deepEqual([page.shown().length, second.shown().length, third.shown().length], [1, 1, 0]);
  await forgetFailures();
});

describe('a device', () => {
  test('gets a secret and a code, and Redis knows no more than a hash of the secret', async () => {
    const { pairing, code, expires_in } = await beginPairing(device.baseUrl, sluice.appId);
    assert.match(pairing, /^slp_[\w-]{43}$/);
    assert.match(code, /^[0-9A-HJKMNP-TV-Z]{3}-[0-9A-HJKMNP-TV-Z]{3}$/);
    assert.equal(expires_in, 600);
    const { address, ...fields } = await redis.hgetall(keyOf(pairing));
    assert.deepEqual(fields, { app_id: sluice.appId, code, state: 'waiting' });
    assert.match(String(address), /^[0-9a-f]{32}$/);
    for (const key of await redis.keys('{visualizer}:*')) {
      assert.ok((await redis.pttl(key)) > 0, `${key} ends by itself`);
      assert.ok(!key.includes(pairing) && !key.includes('127.0.0.1'), key);
    }
  });

  test('is refused for a bad request as at every endpoint, with CORS headers', async () => {
    const refused: [string, unknown, number, string, string?][] = [
      ['', '{', 400, 'invalid_json'],
      ['', [], 400, 'invalid_type'],
      ['', {}, 400, 'missing_field', 'app_id'],
      ['', { app_id: true }, 400, 'invalid_type', 'app_id'],
      ['', { app_id: Number(sluice.appId) }, 400, 'invalid_type', 'app_id'],
      ['', { app_id: '999999999' }, 400, 'unknown_app_id', 'app_id'],
      ['', { app_id: sluice.appId, pairing: 5 }, 400, 'invalid_type', 'pairing'],
      ['', { app_id: sluice.appId, more: 'z'.repeat(bodies.pairingBytesMax) }, 413, 'body_too_large'],
      ['/stop', { app_id: sluice.appId }, 400, 'missing_field', 'pairing'],
      ['/stop', { app_id: sluice.appId, pairing: 5 }, 400, 'invalid_type', 'pairing'],
    ];
    for (const [path, body, status, code, field] of refused) {
      const answer = await post(`${device.baseUrl}/api/visualizer/pairings${path}`, body);
      const { err } = answer.body as { err: { code: string; field?: string } };
      assert.deepEqual([answer.status, err.code, err.field], [status, code, field], JSON.stringify(body));
    }
    for (const [method, status] of [
      ['OPTIONS', 204],
      ['GET', 405],
    ] as const) {
      const reply = await fetch(`${device.baseUrl}/api/visualizer/pairings`, { method });
      assert.deepEqual([reply.status, reply.headers.get('access-control-allow-origin')], [status, '*']);
    }
  });

  test('that asks again by its secret gets the same pairing, as long as there is one', async () => {
    const again = (appId: string, pairing: string) =>
      post(`${device.baseUrl}/api/visualizer/pairings`, { app_id: appId, pairing });
    const begun = await pair();
    const waiting = await beginPairing(device.baseUrl, sluice.appId);
    for (const [{ pairing, code }, seconds] of [
      [waiting, 600],
      [begun, 60],
    ] as const) {
      const { status, body } = await again(sluice.appId, pairing);
      assert.deepEqual([status, body.pairing, body.code], [200, pairing, code]);
      assert.ok(Number(body.expires_in) > 0 && Number(body.expires_in) <= seconds, `${body.expires_in}`);
    }
    await send([event('still shown')], begun.pairing);
    await begun.page.untilShown(1);

    const other = sluice.bootstrap.environments.find(({ main }) => !main)?.app_id ?? '';
    const strange = await again(other, waiting.pairing);
    assert.equal(strange.status, 201, 'not for another environment');
    await stopPairing(device.baseUrl, sluice.appId, begun.pairing);
    for (const answer of [
      strange,
      ...(await Promise.all([begun.pairing, 'nonsense', ''].map((secret) => again(sluice.appId, secret)))),
    ]) {
      assert.equal(answer.status, 201);
      assert.match(String(answer.body.pairing), /^slp_/);
      assert.ok(
        ![begun, waiting].some(
          ({ pairing, code }) => pairing === answer.body.pairing || code === answer.body.code,
        ),
      );
    }
  });

  test('gets the same 200 for stopping a pairing once, twice, or one that never was', async () => {
    const { pairing } = await beginPairing(device.baseUrl, sluice.appId);
    for (const secret of [pairing, pairing, `slp_${'A'.repeat(43)}`, 'nonsense', '']) {
      assert.deepEqual(await stopPairing(device.baseUrl, sluice.appId, secret), { status: 200, body: {} });
    }
    assert.equal(await redis.exists(keyOf(pairing)), 0);
  });

  test('of another environment does not stop it', async () => {
    const { pairing } = await beginPairing(device.baseUrl, sluice.appId);
    const other = sluice.bootstrap.environments.find(({ main }) => !main)?.app_id ?? '';
    await stopPairing(device.baseUrl, other, pairing);
    assert.equal(await redis.exists(keyOf(pairing)), 1);
  });

  test('learns that its own pairing has ended, and nothing about another one', async () => {
    const { pairing } = await beginPairing(device.baseUrl, sluice.appId);
    const other = sluice.bootstrap.environments.find(({ main }) => !main)?.app_id ?? '';
    assert.equal((await send([event('waits')], pairing)).body.pairing, undefined);
    assert.equal((await send([event('no pairing')])).body.pairing, undefined);
    await untilEnded(pairing, other);
    for (const secret of [`slp_${'A'.repeat(43)}`, 'p'.repeat(lengths.pairingMax + 1), ''])
      await untilEnded(secret);
    await stopPairing(device.baseUrl, sluice.appId, pairing);
    await untilEnded(pairing);
    const { status, body } = await send([event('stopped')], pairing);
    assert.equal(status, 200);
    assert.equal((body.messages as { status: string }[])[0]?.status, 'stored');
  });
});

describe('pairings that wait', () => {
  const begin = (from: string) =>
    post(`${device.baseUrl}/api/visualizer/pairings`, { app_id: sluice.appId }, from);

  before(async () => {
    const keys = await redis.keys('{visualizer}:*');
    if (keys.length > 0) await redis.del(...keys);
  });
  after(async () => {
    const keys = await redis.keys('{visualizer}:*');
    if (keys.length > 0) await redis.del(...keys);
  });

  test('are at most 30 per address, even if all come at once, and 100 per environment', async () => {
    const { waitingPerAddressMax, waitingPerAppMax } = visualizer;
    const statuses = async (from: string, count: number) =>
      (await Promise.all(Array.from({ length: count }, () => begin(from)))).map(({ status }) => status);
    const first = await statuses('127.0.0.2', waitingPerAddressMax + 10);
    assert.equal(first.filter((status) => status === 201).length, waitingPerAddressMax);
    assert.equal(first.filter((status) => status === 429).length, 10);
    const more = [
      ...(await statuses('127.0.0.3', waitingPerAddressMax)),
      ...(await statuses('127.0.0.4', waitingPerAddressMax)),
      ...(await statuses('127.0.0.5', waitingPerAddressMax)),
    ];
    assert.equal(
      more.filter((status) => status === 201).length,
      waitingPerAppMax - waitingPerAddressMax,
      'the bound of the environment',
    );
  });

  test('make room when one is stopped or its code is entered', async () => {
    assert.equal((await begin('127.0.0.6')).status, 429, 'the environment has as many as it may');
    const hash = await redis.zrange(visualizerKeys.waiting, '0', '0');
    const fields = await redis.hgetall(visualizerKeys.pairing(String(hash[0])));
    const page = openPage(String(fields.code));
    await page.heard('paired');
    const { status, body } = await begin('127.0.0.6');
    assert.equal(status, 201);
    assert.equal((await begin('127.0.0.6')).status, 429);
    await stopPairing(device.baseUrl, sluice.appId, String(body.pairing));
    assert.equal((await begin('127.0.0.6')).status, 201);
    page.socket.terminate();
  });
});

describe('a paired page', () => {
  test('shows the messages of its device in their order, each with the server’s answer', async () => {
    const { pairing, page } = await pair();
    const id = randomUUID();
    const properties = { amount: 12.5, tags: ['a', 'b'] };
    const { body } = await send(
      [
        event('first', { id, properties, identity: 'ada@example.com', time: new Date().toISOString() }),
        event('again', { id }),
        event('x'.repeat(256)),
        { type: 'identify', id: randomUUID(), user_id: '7', identity: 'ada@example.com' },
        'no object',
      ] as object[],
      pairing,
    );
    const shown = await page.untilShown(5);
    assert.deepEqual(
      shown.map(({ answer }) => answer),
      body.messages,
    );
    assert.deepEqual(
      (body.messages as { status: string }[]).map(({ status }) => status),
      ['stored', 'repeat', 'rejected', 'stored', 'rejected'],
    );
    assert.deepEqual(
      [shown[0]?.event, shown[0]?.properties, shown[0]?.session_id],
      ['first', properties, 's1'],
    );
    assert.equal(shown[3]?.type, 'identify');
    const limited = Array.from({ length: 31 }, (_, i) => ({
      type: 'user_properties',
      id: randomUUID(),
      user_id: '8',
      properties: { i },
    }));
    await send(limited, pairing);
    const all = await page.untilShown(36);
    const last = all[35]?.answer as { status: string; retry_after: number };
    assert.equal(last.status, 'limited');
    assert.ok(last.retry_after > 0);
  });

  test('gets nothing from before its code was entered, of other devices, or after the end', async () => {
    const other = await pair();
    const { pairing, code } = await beginPairing(device.baseUrl, sluice.appId);
    const published: string[] = [];
    const listener = redis.duplicate();
    listener.on('pmessage', (_, name: string) => published.push(name));
    await listener.psubscribe(visualizerKeys.channel('*'));
    await send([event('before')], pairing);
    const page = openPage(code);
    assert.equal((await page.heard('paired')).app_id, sluice.appId);
    listener.disconnect();
    assert.deepEqual(published, [], 'before the code is entered, not even Redis sees it');
    await send([event('unpaired')]);
    await send([event('of the other')], other.pairing);
    await send([event('mine')], pairing);
    await page.untilShown(1);
    await stopPairing(device.baseUrl, sluice.appId, pairing);
    await page.untilClosed();
    await send([event('after')], pairing);
    await other.page.untilShown(1);
    assert.deepEqual(
      page.shown().map(({ event: name }) => name),
      ['mine'],
    );
    assert.deepEqual(
      other.page.shown().map(({ event: name }) => name),
      ['of the other'],
    );
  });

  test('learns that the device stops, and is closed', async () => {
    const { pairing, page } = await pair();
    await stopPairing(device.baseUrl, sluice.appId, pairing);
    assert.equal((await page.heard('ended')).reason, 'device');
    assert.deepEqual(await page.untilClosed(), { code: 4000, reason: 'device' });
  });

  test('ends the pairing for the device and for every other page', async () => {
    const { pairing, code, page } = await pair();
    const second = openPage(code);
    await second.heard('paired');
    await send([event('seen twice')], pairing);
    await Promise.all([page.untilShown(1), second.untilShown(1)]);
    page.socket.send(JSON.stringify({ type: 'end' }));
    assert.equal((await second.heard('ended')).reason, 'page');
    await page.untilClosed();
    await untilEnded(pairing);
    assert.deepEqual(await redis.exists(keyOf(pairing), visualizerKeys.code(code)), 0);
  });

  test('may come back with its code while the pairing lives, which is a minute without the page', async () => {
    const { pairing, code, page } = await pair();
    page.socket.terminate();
    await page.untilClosed();
    const leftMs = await redis.pttl(keyOf(pairing));
    assert.ok(leftMs > 50_000 && leftMs <= visualizer.leaseMs, String(leftMs));
    assert.equal((await send([event('unseen')], pairing)).body.pairing, undefined);
    const back = openPage(code.toLowerCase().replace('-', ' '));
    await back.heard('paired');
    await send([event('seen')], pairing);
    assert.deepEqual(
      (await back.untilShown(1)).map(({ event: name }) => name),
      ['seen'],
    );
    back.socket.terminate();
    await redis.pexpire(keyOf(pairing), 1);
    await until(async () => (await redis.exists(keyOf(pairing))) === 0, 'it ends');
    await untilEnded(pairing);
  });

  test('renews its pairing, and learns within seconds that it has expired', async () => {
    const [lives, expired] = await Promise.all([pair(), pair()]);
    await redis.pexpire(keyOf(lives.pairing), 45_000);
    await redis.hset(keyOf(expired.pairing), 'ends_ms', Date.now());
    const msMax = visualizer.renewEveryMs + 15_000;
    await Promise.all([
      until(async () => (await redis.pttl(keyOf(lives.pairing))) > 50_000, {
        deadlineMs: msMax,
        what: 'the pairing is renewed',
      }),
      (async () => {
        assert.equal((await expired.page.heard('ended', msMax)).reason, 'expired');
        assert.equal((await expired.page.untilClosed()).code, 4000);
      })(),
    ]);
  });
});

describe('a caller who lacks a token or a code', () => {
  before(forgetFailures);

  test('is sent away with the reason', async () => {
    const { code } = await beginPairing(device.baseUrl, sluice.appId);
    const refused: [unknown, string, number][] = [
      [{ token: 'wrong', code }, 'wrong_token', 4401],
      [{ token: '', code }, 'wrong_token', 4401],
      [{ token: sluice.adminToken, code: '000-000' }, 'wrong_code', 4404],
      [{ token: sluice.adminToken, code: 'UUU-UUU' }, 'wrong_code', 4404],
      [{ token: sluice.adminToken }, 'unreadable', 1008],
      [{ type: 'end' }, 'unreadable', 1008],
      ['{', 'unreadable', 1008],
      ['null', 'unreadable', 1008],
    ];
    for (const [hello, reason, closeCode] of refused) {
      const page = await openAnswered(hello);
      const said = await page.heard('refused');
      assert.deepEqual([said.reason, (await page.untilClosed()).code], [reason, closeCode]);
      assert.match(String(said.message), /\.$/);
    }
    await forgetFailures();
  });

  test('is closed for sending too much, or anything but the end once it is paired', async () => {
    const long = openLivePage(admin.adminUrl, 'x'.repeat(visualizer.helloBytesMax + 1));
    await long.untilClosed();
    const { page } = await pair();
    page.socket.send('{"token":"a","code":"b"}');
    assert.equal((await page.untilClosed()).code, 1008);
  });

  test('who sends nothing is closed after five seconds, and leaves room for callers with a token and a code', async () => {
    const { code } = await beginPairing(device.baseUrl, sluice.appId);
    const silent = Array.from({ length: 3 * visualizer.unpairedPerAddressMax }, () =>
      openLivePage(admin.adminUrl, undefined, {}, '127.0.0.2'),
    );
    const isSettled = ({ socket, closed }: LivePage) =>
      socket.readyState === socket.OPEN || closed() !== undefined;
    await until(() => silent.every(isSettled), 'each page is let in or refused');
    const served = silent.filter(({ socket }) => socket.readyState === socket.OPEN).length;
    assert.ok(served <= visualizer.unpairedPerAddressMax, `${served} pages that say nothing are served`);
    await openPage(code).heard('paired');
    const codes = await Promise.all(silent.map(async (page) => (await page.untilClosed(60_000)).code));
    assert.deepEqual(new Set(codes), new Set([1006, 4408]), 'refused, or closed as too late');
  });

  test('cannot use up the connections of ADMIN_PORT', async () => {
    const { code } = await beginPairing(device.baseUrl, sluice.appId);
    const { hostname, port } = new URL(admin.adminUrl);
    const { adminMax, busyFrom } = connections;
    const before = openDescriptors(admin.pid);
    const flood = Array.from({ length: 0.7 * adminMax }, () => {
      const socket = connect({ host: hostname, port: Number(port), localAddress: '127.0.0.2' });
      return socket.on('error', () => undefined);
    });
    await until(() => flood.every(({ connecting }) => !connecting), 'each is connected or refused');
    // This page connects last, so all others were accepted or refused by then.
    await openPage(code).heard('paired');
    const open = openDescriptors(admin.pid) - before;
    assert.ok(open < busyFrom * adminMax + 50, `${open} connections of one address`);
    assert.equal((await fetch(`${admin.adminUrl}/metrics`)).status, 200);
    for (const socket of flood) socket.destroy();
  });

  test('cannot use a code that has expired or was stopped', async () => {
    const [expired, stopped] = [
      await beginPairing(device.baseUrl, sluice.appId),
      await beginPairing(device.baseUrl, sluice.appId),
    ];
    await redis.pexpire(visualizerKeys.code(expired.code), 1);
    await stopPairing(device.baseUrl, sluice.appId, stopped.pairing);
    for (const { code } of [expired, stopped]) {
      assert.equal((await openPage(code).heard('refused')).reason, 'wrong_code');
    }
  });

  test('has to wait after twenty failures, unlike a caller with the token and a code', async () => {
    await forgetFailures();
    const refusalsOf = (token: string) =>
      Promise.all(
        Array.from({ length: visualizer.failuresPerMinuteMax + 5 }, async () => {
          const page = openLivePage(admin.adminUrl, { token, code: '000-000' });
          return (await page.heard('refused')).reason;
        }),
      );
    const limited = (reasons: readonly unknown[]) => reasons.filter((reason) => reason === 'limited').length;
    const { code } = await beginPairing(device.baseUrl, sluice.appId);
    assert.equal(limited(await refusalsOf('wrong')), 5);
    // A machine that pauses delays some answers, but rarely all, so the quickest one counts.
    let quickestMs = Number.POSITIVE_INFINITY;
    for (let tries = 0; tries < 5 && quickestMs >= visualizer.guessMs; tries += 1) {
      const startedMs = performance.now();
      await openPage(code).heard('paired');
      quickestMs = Math.min(quickestMs, performance.now() - startedMs);
    }
    assert.ok(quickestMs < visualizer.guessMs, 'wrong tokens do not even delay the right one');

    const other = await beginPairing(device.baseUrl, sluice.appId);
    assert.equal(limited(await refusalsOf(sluice.adminToken)), 5, 'wrong codes are counted apart');
    const slow = performance.now();
    assert.equal((await openPage('000-000').heard('refused')).reason, 'limited');
    await openPage(other.code).heard('paired');
    assert.ok(performance.now() - slow >= 2 * visualizer.guessMs, 'each further code waits for its answer');
    await forgetFailures();
  });

  test('may leave before the answer, and nobody else notices', async () => {
    const { code } = await beginPairing(device.baseUrl, sluice.appId);
    const hellos = [
      { token: 'wrong', code },
      { token: sluice.adminToken, code: '000-000' },
      { token: sluice.adminToken, code },
    ];
    const { pid } = admin;
    // Two of three requests fail. These are too few to make the address wait, whenever they are counted.
    await Promise.all(
      Array.from({ length: visualizer.failuresPerMinuteMax }, async (_, i) => {
        const page = openLivePage(admin.adminUrl, hellos[i % 3]);
        page.socket.on('open', () => page.socket.terminate());
        await page.untilClosed();
      }),
    );
    await forgetFailures();
    await openPage(code).heard('paired');
    assert.deepEqual([admin.pid, admin.running], [pid, true]);
  });

  test('gets no connection beyond the two hundred that a process serves', async () => {
    // All pages have a code, so the served ones stay until all have connected, however long that takes.
    const { code } = await beginPairing(device.baseUrl, sluice.appId);
    const more: LivePage[] = [];
    try {
      const isPaired = ({ said }: LivePage) => said.some(({ type }) => type === 'paired');
      while (more.length < visualizer.pagesMax + 20) {
        // Opens as many pages at once as may be unpaired.
        for (let count = 0; count < visualizer.unpairedPerAddressMax; count++)
          more.push(openLivePage(admin.adminUrl, { token: sluice.adminToken, code }));
        await until(
          () => more.every((page) => isPaired(page) || page.closed() !== undefined),
          'each is served or refused',
        );
      }
      const served = more.filter(isPaired).length;
      assert.ok(
        served <= visualizer.pagesMax && served >= visualizer.pagesMax - pages.length,
        String(served),
      );
      assert.ok(more.every((page) => isPaired(page) || page.closed()?.code === 1006));
    } finally {
      for (const { socket } of more) socket.terminate();
      await Promise.all(more.map((page) => page.untilClosed()));
    }
    await openPage(code).heard('paired');
  });

  test('gets no connection from a page of another site', async () => {
    const { host } = new URL(admin.adminUrl);
    const hello = { token: 'wrong', code: '000-000' };
    for (const headers of [
      { origin: 'https://elsewhere.example' },
      { origin: 'null' },
      { origin: `http://${host}`, 'sec-fetch-site': 'cross-site' },
      { origin: admin.baseUrl, 'sec-fetch-site': 'same-site' },
    ]) {
      const page = openLivePage(admin.adminUrl, hello, headers as unknown as Record<string, string>);
      assert.equal((await page.untilClosed()).code, 1006, JSON.stringify(headers));
      assert.deepEqual(page.said, []);
    }
    const own = openLivePage(admin.adminUrl, hello, { origin: `http://${host}` });
    assert.equal((await own.heard('refused')).reason, 'wrong_token');
    await forgetFailures();
  });
});

test('nothing of what is shown stays in Redis, in memory or on disk', async () => {
  const { pairing, page } = await pair();
  const marker = `marker-${randomUUID()}`;
  // The message is rejected, so that only the visualizer ever has it.
  const bad = {
    ...event('x'.repeat(256)),
    identity: marker,
    session_id: marker,
    properties: { [marker]: marker },
  };
  await send([bad], pairing);
  assert.equal((await page.untilShown(1))[0]?.identity, marker);
  for (const key of await redis.keys('*')) {
    assert.ok(!key.includes(marker), key);
    const dump = await redis.dumpBuffer(key);
    assert.ok(!dump?.includes(marker), key);
  }
  const folder = join(sluice.redis.dir, 'appendonlydir');
  assert.ok(readdirSync(folder).length > 0);
  assert.deepEqual(filesWith(folder, [marker]), []);
  assert.ok(!device.output().includes(marker) && !admin.output().includes(marker), 'nor in the logs');
});

test('a page that does not read costs the service no more than its bound, and gets the number of messages that it missed', async () => {
  const { pairing, page } = await pair();
  const memory = () =>
    Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${admin.pid}/status`, 'utf8'))?.[1]);
  const batches = 200;
  const properties = Object.fromEntries(Array.from({ length: 190 }, (_, i) => [`k${i}`, 'v'.repeat(1000)]));
  // On a machine whose disk stalls a batch may be refused, and then no page shows it.
  let taken = 0;
  const sendOne = async (name: string, fields = {}) => {
    if ((await send([event(name, fields)], pairing)).status === 200) taken += 1;
  };
  const countMissed = () =>
    page.said.reduce((sum, { type, count }) => sum + (type === 'missed' ? Number(count) : 0), 0);
  const untilAllCounted = () =>
    until(() => page.shown().length + countMissed() === taken, 'every message is shown or counted');
  /**
   * Sends no faster than the page's process reads, which may pause: Redis cuts off a subscriber that lags behind by 32 MB. On a busy
   * machine this may take longer than the service waits for an answer to its ping, so the page sends pongs unasked.
   */
  const sendAll = async (name: string) => {
    for (let i = 0; i < batches; i++) {
      if (i % 25 === 0) {
        await (await fetch(`${admin.adminUrl}/metrics`)).text();
        page.socket.pong();
      }
      await sendOne(name, { properties });
    }
  };
  // Even for a page that reads, passing messages on takes some memory of the process.
  await sendAll('read');
  await untilAllCounted();
  const missedBefore = countMissed();
  const beforeKiB = memory();
  page.socket.pause();
  await sendAll('large');
  const grownKiB = memory() - beforeKiB;
  assert.ok(grownKiB < 34 * 1024, `40 MB were sent, the memory grew by ${grownKiB} KiB`);
  page.socket.resume();
  await until(async () => {
    assert.equal(page.closed(), undefined, 'the page is still connected');
    await sendOne('last');
    return page.shown().some(({ event: name }) => name === 'last');
  }, 'the page has caught up');
  assert.ok(countMissed() - missedBefore > batches / 2, `${countMissed() - missedBefore} missed`);
  await untilAllCounted();
});

test('a batch that is too large for one message is cut, and the rest counted', async () => {
  const { pairing, page } = await pair();
  const properties = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`k${i}`, 'ä'.repeat(1000)]));
  await send(
    Array.from({ length: 20 }, () => event('wide', { properties })),
    pairing,
  );
  const batch = await page.heard('batch');
  const shown = (batch.messages as object[]).length;
  assert.ok(shown > 2 && shown < 8, String(shown));
  assert.equal(shown + Number(batch.left_out), 20);
});

test('the people of an account fill some pages only, and get so much in a second on all of them', async () => {
  const [watching, neighbour] = await Promise.all(
    ['Watching', 'Neighbour'].map((name) => createTestAccount(sluice, name)),
  );
  assert.ok(watching !== undefined && neighbour !== undefined);
  const [appId = ''] = watching.appIds;
  await sluice.admin('environments', 'set', appId, '--limit', 'collect_user=none');
  const person = await personOf('administrator', watching.accountId);
  const { pairing, code } = await beginPairing(device.baseUrl, appId);
  const own: LivePage[] = [];
  while (own.length < visualizer.pagesOfAccountMax) {
    own.push(openAs(person, code));
    await own.at(-1)?.heard('paired');
  }
  assert.equal((await openAs(person, code).heard('refused')).reason, 'full');
  const theirs = await beginPairing(device.baseUrl, neighbour.appIds[0] as string);
  await openAs(await personOf('administrator', neighbour.accountId), theirs.code).heard('paired');
  const properties = Object.fromEntries(Array.from({ length: 190 }, (_, i) => [`k${i}`, 'v'.repeat(1000)]));
  const startedMs = performance.now();
  let taken = 0;
  for (let i = 0; i < 20; i++) {
    const { status } = await collect(
      device.baseUrl,
      appId,
      [event('shown to many', { properties })],
      pairing,
    );
    if (status === 200) taken += 1;
  }
  const bytes = () => JSON.stringify(own.map((page) => page.shown())).length;
  const countMissed = ({ said }: LivePage) =>
    said.reduce((sum, { type, count }) => sum + (type === 'missed' ? Number(count) : 0), 0);
  await until(
    async () => {
      taken += Number((await collect(device.baseUrl, appId, [event('last')], pairing)).status === 200);
      return own.every((page) => page.shown().length + countMissed(page) >= taken - 1);
    },
    { what: 'every page has shown or counted every message', everyMs: 200 },
  );
  assert.ok(own.some((page) => countMissed(page) > 0));
  // Counts all seconds until now, since the process of the pages may lag behind.
  const seconds = Math.ceil((performance.now() - startedMs) / 1_000) + 1;
  assert.ok(bytes() <= seconds * visualizer.bytesOfAccount.max, `${bytes()} in ${seconds} s`);
  // A page that leaves makes room.
  own[0]?.socket.close();
  await own[0]?.untilClosed();
  await openAs(person, code).heard('paired');
});

test('a page that asks a thousand times for the end is heard once', async () => {
  const { page } = await pair();
  await redis.config('RESETSTAT');
  for (let i = 0; i < 1_000; i++) page.socket.send('{"type":"end"}');
  await page.untilClosed();
  const calls = /cmdstat_publish:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1];
  assert.equal(Number(calls), 1);
});

test('when Redis drops out, the page stays, learns that something may be missing, and continues', async () => {
  const { pairing, page } = await pair();
  await sluice.redis.kill9();
  await page.heard('gap');
  const answer = await send([event('refused')], pairing);
  assert.equal(answer.status, 503);
  const begun = await post(`${device.baseUrl}/api/visualizer/pairings`, { app_id: sluice.appId });
  assert.equal(begun.status, 503);
  assert.equal((await openPage('000-000').heard('refused')).reason, 'unavailable');
  await sluice.redis.restart();
  await until(
    async () => {
      await send([event('back')], pairing);
      return page.shown().length > 0;
    },
    { what: 'events are shown again', everyMs: 100 },
  );
  assert.equal(page.closed(), undefined);
});

test('SIGTERM closes pages with 1001, and the process ends in time', async () => {
  const { page } = await pair();
  const exit = await admin.sigterm();
  assert.deepEqual(exit, { code: 0, signal: null });
  assert.deepEqual(await page.untilClosed(), { code: 1001, reason: 'stopping' });
  await admin.restart();
  const again = await pair();
  await send([event('after the restart')], again.pairing);
  await again.page.untilShown(1);
});
