// Segment's protocol: its real libraries and RudderStack's, requests as the libraries for other languages send them, and
// what is stored of them.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import RudderAnalytics from '@rudderstack/rudder-sdk-node';
import { Analytics } from '@segment/analytics-node';
import { build } from 'esbuild';
import { counts, lengths } from '../../src/contract/limits.js';
import { userIdOfAnonymousId } from '../../src/contract/user-id.js';
import { pageViewEvent } from '../../src/libraries/client/web/page-views.js';
import { createEnvironments, createTestAccount } from '../harness/accounts.js';
import { launchBrowser, withoutBrowser } from '../harness/browser.js';
import { getToken, submit, untilComplete } from '../harness/deletion.js';
import { untilStored } from '../harness/ingestion.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';

type StoredEvent = {
  readonly event: string;
  readonly user_id: string | null;
  readonly identity: string;
  readonly session_id: string;
  readonly time_ms: number;
  readonly properties: Readonly<Record<string, string>>;
};
type StoredUser = {
  readonly identity: string;
  readonly user_ids: readonly string[];
  readonly email: string;
  readonly properties: Readonly<Record<string, string>>;
};

const sluice = await sharedSluice();
const appIds = await createEnvironments(sluice, [
  ['--limit', 'bulk_app=3', '--limit', 'bulk_identity=2'],
  ...Array.from({ length: 17 }, () => []),
]);
/** An environment that no other test uses. */
const newAppId = () => appIds.pop() as string;

const basic = (appId: string) => `Basic ${Buffer.from(`${appId}:`).toString('base64')}`;

async function post(path: string, body: unknown, headers: Readonly<Record<string, string>> = {}) {
  const reply = await fetch(`${sluice.baseUrl}/v1/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: body instanceof Uint8Array ? (body as Uint8Array<ArrayBuffer>) : JSON.stringify(body),
    signal: AbortSignal.timeout(20_000),
  });
  const text = await reply.text();
  return { status: reply.status, headers: reply.headers, text, json: JSON.parse(text) };
}

async function send(appId: string, path: string, body: unknown): Promise<void> {
  const { status, text } = await post(path, body, { authorization: basic(appId) });
  assert.equal(`${status} ${text}`, '200 {"success":true}');
}

async function eventsOf(appId: string): Promise<StoredEvent[]> {
  await untilStored(sluice);
  return sluice
    .rows<StoredEvent>(
      `SELECT event, toString(user_id) AS user_id, identity, session_id, properties,
       toUnixTimestamp64Milli(time) AS time_ms FROM events WHERE app_id = '${appId}' ORDER BY event, time`,
    )
    .then((rows) => rows.map((row) => ({ ...row, time_ms: Number(row.time_ms) })));
}

async function usersOf(appId: string): Promise<StoredUser[]> {
  await untilStored(sluice);
  return sluice.rows<StoredUser>(
    `SELECT identity, arrayMap(x -> toString(x), user_ids) AS user_ids, email, properties FROM users
     WHERE app_id = '${appId}' ORDER BY identity`,
  );
}

const anonymousId = '5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11';

test('an anonymousId of any form has one user_id of 53 bits for ever, and ClickHouse can compute it', async () => {
  assert.equal(userIdOfAnonymousId(anonymousId), '1276961932640087');
  const texts = [anonymousId, '', '7', 'ä😀\n', 'x'.repeat(100_000)];
  const [row] = await sluice.rows<{ ids: string[] }>(
    `SELECT arrayMap(id -> toString(bitShiftRight(reinterpretAsUInt64(reverse(substring(
       SHA256(concat('anonymous_id', char(0), id)), 1, 8))), 11)), ${JSON.stringify(texts).replaceAll('"', "'")}) AS ids`,
  );
  assert.deepEqual(row?.ids, texts.map(userIdOfAnonymousId));
  const many = Array.from({ length: 2_000 }, (_, i) => Number(userIdOfAnonymousId(String(i))));
  assert.ok(many.every((id) => Number.isSafeInteger(id) && id >= 0));
  assert.ok(Math.max(...many) > 2 ** 52.9 && Math.min(...many) < 2 ** 44);
});

describe('the libraries for Node', () => {
  /** What a caller of either library does; both must store the same. */
  type Library = {
    track(message: object): unknown;
    identify(message: object): unknown;
    page(message: object): unknown;
    screen(message: object): unknown;
    group(message: object): unknown;
    alias(message: object): unknown;
  };
  const record = (library: Library) => {
    library.track({ anonymousId, event: 'Opened', properties: { gift: true, nested: { a: 1 }, none: null } });
    library.page({ anonymousId, name: 'Pricing', category: 'Docs', properties: { path: '/pricing' } });
    library.screen({ anonymousId, name: 'Home', properties: { tab: 2 } });
    library.identify({
      anonymousId,
      userId: 'ada@example.com',
      traits: { email: 'ada@example.com', address: { city: 'London' } },
    });
    library.group({ userId: 'ada@example.com', groupId: 'acme', traits: { plan: 'pro' } });
    library.alias({ previousId: 'an older phone', userId: 'ada@example.com' });
    library.track({
      userId: 'ada@example.com',
      event: 'Ordered',
      properties: { amount: 12.5 },
      timestamp: new Date('2024-02-29T12:00:00.250Z'),
    });
  };
  const check = async (appId: string, historical: boolean) => {
    const id = userIdOfAnonymousId(anonymousId);
    const events = await eventsOf(appId);
    const shown = events.map(({ event, user_id, identity, properties }) => [
      event,
      user_id,
      identity,
      Object.fromEntries(Object.entries(properties).filter(([key]) => !key.startsWith('context.'))),
    ]);
    assert.deepEqual(shown, [
      ['Opened', id, '', { gift: 'true', 'nested.a': '1' }],
      ['Ordered', null, 'ada@example.com', { amount: '12.5' }],
      ['Page View', id, '', { path: '/pricing', name: 'Pricing', category: 'Docs' }],
      ['Screen View', id, '', { tab: '2', screen_name: 'Home' }],
    ]);
    assert.ok(events.every(({ properties }) => properties['context.library.name'] !== undefined));
    if (historical) {
      const differenceMs = Math.abs((events[1]?.time_ms ?? 0) - Date.parse('2024-02-29T12:00:00.250Z'));
      assert.ok(differenceMs < 60_000, String(differenceMs));
    }
    assert.deepEqual(await usersOf(appId), [
      {
        identity: 'ada@example.com',
        user_ids: [id, userIdOfAnonymousId('an older phone')].toSorted((a, b) => Number(a) - Number(b)),
        email: 'ada@example.com',
        properties: {
          email: 'ada@example.com',
          'address.city': 'London',
          group_id: 'acme',
          group_plan: 'pro',
        },
      },
    ]);
  };

  test('@segment/analytics-node', async () => {
    const appId = newAppId();
    const analytics = new Analytics({ writeKey: appId, host: sluice.baseUrl, maxRetries: 0 });
    const failures: unknown[] = [];
    analytics.on('error', (error) => failures.push(error));
    record(analytics as unknown as Library);
    await analytics.closeAndFlush({ timeout: 20_000 });
    assert.deepEqual(failures, []);
    await check(appId, true);
  });

  test('@rudderstack/rudder-sdk-node', async () => {
    const appId = newAppId();
    const analytics = new RudderAnalytics(appId, { dataPlaneUrl: sluice.baseUrl, flushInterval: 100 });
    record(analytics as unknown as Library);
    await new Promise<void>((resolve, reject) =>
      analytics.flush((error?: Error) => (error === undefined || error === null ? resolve() : reject(error))),
    );
    await check(appId, true);
  });
});

describe('@segment/analytics-next in Chromium', { skip: withoutBrowser() }, () => {
  const bundle = () =>
    build({
      stdin: {
        contents: `import { AnalyticsBrowser } from '@segment/analytics-next'; window.AnalyticsBrowser = AnalyticsBrowser;`,
        resolveDir: fileURLToPath(new URL('../../../', import.meta.url)),
      },
      bundle: true,
      write: false,
      define: { 'process.env.NODE_ENV': '"production"' },
    });

  test('sends single calls and batches from another origin, after setting two addresses only', async () => {
    const { outputFiles } = await bundle();
    const site = createServer((request, reply) => {
      if (request.url === '/library.js') reply.setHeader('content-type', 'text/javascript');
      else reply.setHeader('content-type', 'text/html');
      reply.end(
        request.url === '/library.js' ? outputFiles[0]?.contents : '<script src="/library.js"></script>',
      );
    });
    site.listen(0, '127.0.0.1');
    await once(site, 'listening');
    const browser = await launchBrowser();
    try {
      for (const deliveryStrategy of [
        undefined,
        { strategy: 'batching', config: { size: 5, timeout: 500 } },
      ]) {
        const appId = newAppId();
        const page = await (await browser.newContext()).newPage();
        page.setDefaultTimeout(60_000);
        // On a machine without a network a browser says that it is offline, and then the library sends nothing.
        await page.addInitScript(`Object.defineProperty(navigator, 'onLine', { get: () => true })`);
        const failures: string[] = [];
        page.on('requestfailed', (request) =>
          failures.push(`${request.url()} ${request.failure()?.errorText}`),
        );
        page.on('response', (reply) => {
          if (reply.status() >= 400) failures.push(`${reply.status()} ${reply.url()}`);
        });
        await page.goto(`http://127.0.0.1:${(site.address() as AddressInfo).port}/`);
        const id = await page.evaluate(
          async ([writeKey, cdnURL, strategy]) => {
            const { AnalyticsBrowser } = globalThis as unknown as {
              // biome-ignore lint/suspicious/noExplicitAny: the library's own type needs a DOM
              AnalyticsBrowser: { load(settings: object, options: object): any };
            };
            const options =
              strategy === null ? {} : { integrations: { 'Segment.io': { deliveryStrategy: strategy } } };
            const analytics = AnalyticsBrowser.load({ writeKey, cdnURL }, options);
            await analytics.page('Start');
            await analytics.track('Opened', { gift: true, tags: ['a', 'b'] });
            const user = await analytics.user();
            const anonymous = user.anonymousId();
            await analytics.identify('ada@example.com', { plan: 'pro' });
            await analytics.group('acme', { size: 3 });
            await analytics.track('Ordered');
            return anonymous as string;
          },
          [appId, sluice.baseUrl, deliveryStrategy ?? null] as const,
        );
        // Calls about the user may come after the last event.
        const isStored = async () => {
          const [user] = await usersOf(appId);
          const isWhole = user?.properties.plan !== undefined && user.properties.group_size !== undefined;
          return isWhole && (await eventsOf(appId)).length === 3;
        };
        await until(isStored, 'the events and the user are stored');
        assert.deepEqual(failures, []);
        const userId = userIdOfAnonymousId(id);
        const [opened, ordered, viewed] = await eventsOf(appId);
        assert.deepEqual([opened?.event, opened?.user_id, opened?.identity], ['Opened', userId, '']);
        assert.equal(opened?.properties.tags, 'a||b');
        assert.match(opened?.properties['context.page.url'] ?? '', /^http:/);
        assert.deepEqual([ordered?.event, ordered?.identity], ['Ordered', 'ada@example.com']);
        assert.deepEqual([viewed?.event, viewed?.properties.name], [pageViewEvent, 'Start']);
        assert.deepEqual(await usersOf(appId), [
          {
            identity: 'ada@example.com',
            user_ids: [userId],
            email: '',
            properties: { plan: 'pro', group_id: 'acme', group_size: '3' },
          },
        ]);
        await page.context().close();
      }
    } finally {
      await browser.close();
      site.close();
    }
  });
});

describe('requests as other libraries send them', () => {
  const iso = (ms: number) => new Date(ms).toISOString();
  const python = (ms: number) => iso(ms).replace('Z', '456+00:00');
  const requests: Readonly<
    Record<string, (nowMs: number) => { path: string; headers: object; body: unknown }>
  > = {
    'Python (segment-analytics-python 2.3)': (nowMs) => ({
      path: 'batch',
      headers: { 'content-type': 'application/json', 'user-agent': 'analytics-python/2.3.4' },
      body: {
        batch: [
          {
            integrations: {},
            anonymousId: null,
            properties: { amount: 7, gift: false },
            timestamp: python(nowMs - 5_000),
            context: { library: { name: 'analytics-python', version: '2.3.4' } },
            userId: 'grace@example.com',
            type: 'track',
            event: 'Ordered',
            messageId: '5dc0f22f-0b8c-4b77-a1f4-2d1d4a8c1d0a',
          },
        ],
        sentAt: python(nowMs),
        writeKey: 'ignored beside the header',
      },
    }),
    'Go (analytics-go 3)': (nowMs) => ({
      path: 'batch',
      headers: { 'content-type': 'application/json', 'user-agent': 'analytics-go (version: 3.3.0)' },
      body: {
        messageId: 'b0f1a2c3',
        sentAt: iso(nowMs).replace(/\d{3}Z/, '123456789Z'),
        batch: [
          {
            type: 'track',
            messageId: 'I-am-unique',
            userId: 'grace@example.com',
            event: 'Ordered',
            timestamp: iso(nowMs - 5_000).replace(/\.\d+Z/, 'Z'),
            properties: { amount: 7, gift: false },
          },
        ],
        context: { library: { name: 'analytics-go', version: '3.3.0' } },
      },
    }),
    'Java (analytics-java 3), compressed': (nowMs) => ({
      path: 'import/',
      headers: {
        'content-type': 'application/json; charset=utf-8',
        'content-encoding': 'gzip',
        'user-agent': 'analytics-java/3.5.2',
      },
      body: gzipSync(
        JSON.stringify({
          batch: [
            {
              type: 'track',
              messageId: '9b1c',
              sentAt: iso(nowMs),
              timestamp: iso(nowMs - 5_000),
              context: { library: { name: 'analytics-java', version: '3.5.2' } },
              anonymousId: '',
              userId: 'grace@example.com',
              integrations: {},
              event: 'Ordered',
              properties: { amount: 7, gift: false },
            },
          ],
          sentAt: iso(nowMs),
          context: { library: { name: 'analytics-java', version: '3.5.2' } },
          sequence: 1,
          writeKey: 'ignored',
        }),
      ),
    }),
    'Ruby (analytics-ruby 2)': (nowMs) => ({
      path: 'import',
      headers: {
        accept: 'application/json',
        'content-type': 'application/json',
        'user-agent': 'analytics-ruby/2.5.0',
      },
      body: {
        sentAt: iso(nowMs).replace('Z', '+00:00'),
        batch: [
          {
            context: { library: { name: 'analytics-ruby', version: '2.5.0' } },
            messageId: '0c2a',
            timestamp: iso(nowMs - 5_000 + 3_600_000).replace('Z', '+01:00'),
            userId: 'grace@example.com',
            type: 'track',
            event: 'Ordered',
            properties: { amount: 7, gift: false },
          },
        ],
      },
    }),
    'PHP (analytics-php 3)': (nowMs) => ({
      path: 'batch',
      headers: { 'content-type': 'application/json', 'user-agent': 'analytics-php/3.8.0' },
      body: {
        batch: [
          {
            userId: 'grace@example.com',
            event: 'Ordered',
            properties: { amount: 7, gift: false },
            context: { library: { name: 'analytics-php', version: '3.8.0', consumer: 'LibCurl' } },
            timestamp: iso(nowMs - 5_000).replace(/\.\d+Z/, '+00:00'),
            type: 'track',
            messageId: '2f6c',
          },
          { userId: 'grace@example.com', traits: [], context: {}, type: 'identify', messageId: '2f6d' },
        ],
        sentAt: iso(nowMs).replace(/\.\d+Z/, '+00:00'),
      },
    }),
  };
  test('C# (Analytics-CSharp 2), which says neither a type nor credentials', async () => {
    const appId = newAppId();
    const digits = new Date(Date.now() - 86_400_000).toISOString().replace('Z', '4567Z');
    const event = {
      properties: { amount: 7, gift: false },
      event: 'Ordered',
      type: 'track',
      messageId: '3c1d',
      anonymousId: '',
      userId: 'grace@example.com',
      timestamp: digits,
      context: { instanceId: 'x', library: { name: 'Analytics-CSharp', version: '2.5.3' } },
      integrations: {},
    };
    const body = gzipSync(`{"batch":[${JSON.stringify(event)}],"sentAt":"${digits}","writeKey":"${appId}"}`);
    const headers = { 'content-encoding': 'gzip', accept: 'text/plain', connection: 'close' };
    const [status, text] = await new Promise<[number | undefined, string]>((settle, reject) => {
      const sent = request(`${sluice.baseUrl}/v1/b`, { method: 'POST', headers }, async (reply) =>
        settle([reply.statusCode, (await buffer(reply)).toString()]),
      );
      sent.once('error', reject);
      sent.write(body);
      sent.end();
    });
    assert.equal(`${status} ${text}`, '200 {"success":true}');
    const [stored] = await eventsOf(appId);
    assert.deepEqual([stored?.event, stored?.identity], ['Ordered', 'grace@example.com']);
    assert.ok(Math.abs((stored?.time_ms ?? 0) - Date.now()) < 60_000, 'its clock was a day slow');
  });

  for (const [name, made] of Object.entries(requests)) {
    test(name, async () => {
      const appId = newAppId();
      // The sender's clock is a day slow.
      const beforeMs = Date.now();
      const { path, headers, body } = made(beforeMs - 86_400_000);
      const reply = await post(path, body, { ...headers, authorization: basic(appId) });
      assert.equal(`${reply.status} ${reply.text}`, '200 {"success":true}');
      const afterMs = Date.now();
      const [event, ...others] = await eventsOf(appId);
      assert.deepEqual(others, []);
      assert.deepEqual([event?.event, event?.identity], ['Ordered', 'grace@example.com']);
      assert.deepEqual([event?.properties.amount, event?.properties.gift], ['7', 'false']);
      // The call was five seconds before the request. One and a half seconds allow for rounding.
      const atMs = (event?.time_ms ?? 0) + 5_000;
      assert.ok(
        atMs > beforeMs - 1_500 && atMs < afterMs + 1_500,
        `${atMs} of a request from ${beforeMs} to ${afterMs}`,
      );
    });
  }
});

test('a deletion by anonymous_id takes the user that it maps to, with everything merged into it, and nobody else', async () => {
  const account = await createTestAccount(sluice, 'Deleting');
  const [appId = ''] = account.appIds;
  await send(appId, 'batch', {
    batch: [
      { type: 'track', event: 'x', anonymousId },
      { type: 'track', event: 'x', userId: 'ada' },
      { type: 'identify', userId: 'ada', anonymousId, traits: { plan: 'pro' } },
      { type: 'track', event: 'stays', anonymousId: 'another' },
    ],
  });
  const token = await getToken(sluice, account);
  const submitted = await submit(sluice, token, JSON.stringify({ users: [{ anonymous_id: anonymousId }] }));
  assert.equal(submitted.status, 201, submitted.text);
  const { deletion_request_id: request } = JSON.parse(submitted.text) as { deletion_request_id: string };
  await untilComplete(sluice, token, request);
  assert.deepEqual(
    (await eventsOf(appId)).map(({ event, user_id }) => [event, user_id]),
    [['stays', userIdOfAnonymousId('another')]],
  );
  assert.deepEqual(
    (await usersOf(appId)).filter(({ identity }) => identity === 'ada'),
    [],
  );
  const both = await submit(sluice, token, JSON.stringify({ users: [{ identity: 'a', anonymous_id: 'a' }] }));
  assert.equal((JSON.parse(both.text) as { err: { code: string } }).err.code, 'ambiguous_user');
});

test('an anonymousId that strangers share merges nobody, and a deletion leaves their events', async () => {
  const account = await createTestAccount(sluice, 'Words');
  const [appId = ''] = account.appIds;
  const shared = ['null', ' Undefined', '"null"', '00000000-0000-0000-0000-000000000000', '0', '  '];
  const batch = shared.flatMap((id, at) => [
    { type: 'track', event: `by a stranger ${at}`, anonymousId: id },
    { type: 'identify', userId: `carl ${at}`, anonymousId: id, traits: { plan: 'pro' } },
    { type: 'identify', userId: `dora ${at}`, anonymousId: id },
  ]);
  await send(appId, 'batch', { batch });
  for (const previousId of shared) {
    const reply = await post('alias', { previousId, userId: 'carl' }, { authorization: basic(appId) });
    const [{ code, field }] = (reply.json as { errors: [{ code: string; field: string }] }).errors;
    assert.equal(`${reply.status} ${code} ${field}`, '200 merges_strangers previousId', previousId);
  }
  const users = (await usersOf(appId)).filter(({ identity }) => identity !== '');
  assert.deepEqual(
    users.map(({ identity, user_ids, properties }) => [identity, user_ids, properties]),
    [
      ...shared.map((_, at) => [`carl ${at}`, [], { plan: 'pro' }]),
      ...shared.map((_, at) => [`dora ${at}`, [], {}]),
    ],
  );
  const token = await getToken(sluice, account);
  const carls = shared.map((_, at) => ({ identity: `carl ${at}` }));
  const submitted = await submit(sluice, token, JSON.stringify({ users: carls }));
  const { deletion_request_id: request } = JSON.parse(submitted.text) as { deletion_request_id: string };
  await untilComplete(sluice, token, request);
  assert.deepEqual(
    (await eventsOf(appId)).map(({ event }) => event),
    shared.map((_, at) => `by a stranger ${at}`),
  );
});

describe('a request', () => {
  test('is stored once, however often it is sent', async () => {
    const appId = newAppId();
    const message = { messageId: 'm-1', userId: 'ada', anonymousId, traits: { visits: 1 } };
    await send(appId, 'identify', message);
    await send(appId, 'i', { ...message, traits: { visits: 2 } });
    await send(appId, 'batch', { batch: [{ ...message, type: 'identify', traits: { visits: 3 } }] });
    await send(appId, 'track', { messageId: 'm-2', userId: 'ada', event: 'Ordered' });
    await send(appId, 't', { messageId: 'm-2', userId: 'ada', event: 'Paid' });
    assert.deepEqual(
      (await eventsOf(appId)).map(({ event }) => event),
      ['Ordered'],
    );
    assert.deepEqual(
      (await usersOf(appId)).map(({ identity, user_ids, properties }) => ({
        identity,
        user_ids,
        properties,
      })),
      [{ identity: 'ada', user_ids: [userIdOfAnonymousId(anonymousId)], properties: { visits: '1' } }],
    );
  });

  test('without an Authorization header names its environment by writeKey; without both it is refused', async () => {
    const appId = newAppId();
    const body = {
      userId: 7,
      event: 'Ordered',
      context: { sessionId: 17, ip: '192.0.2.1', traits: { a: 1 } },
    };
    assert.equal(
      (await post('track', { ...body, writeKey: appId }, { 'content-type': 'text/plain' })).status,
      200,
    );
    const without = await post('track', body);
    assert.deepEqual([without.status, without.json.err.code], [401, 'unauthorized']);
    assert.match(without.headers.get('www-authenticate') ?? '', /^Basic realm="sluice-write"/);
    assert.equal(without.json.message, without.json.err.message);
    const unknown = await post('track', { ...body, writeKey: '7' });
    assert.deepEqual([unknown.status, unknown.json.err.code], [400, 'unknown_app_id']);
    const wrong = await post('track', { ...body, writeKey: 'slw_nobody' });
    assert.deepEqual([wrong.status, wrong.json.err.code], [400, 'unknown_app_id']);
    assert.deepEqual(
      (await eventsOf(appId)).map(({ identity, session_id, properties }) => [
        identity,
        session_id,
        properties,
      ]),
      [['7', '17', {}]],
    );
  });

  test('needs a write key if the environment requires one, and then the app_id opens nothing', async () => {
    const appId = newAppId();
    const created = (await sluice.admin('write-keys', 'create', appId)) as { write_key: string };
    await sluice.admin('environments', 'set', appId, '--write-key', 'required');
    const message = { userId: 'ada', event: 'Ordered', messageId: 'with-a-key' };
    await until(
      async () => (await post('track', message, { authorization: basic(appId) })).status === 401,
      'the API knows that a write key is required',
    );
    assert.equal((await post('track', { ...message, writeKey: appId })).status, 401);
    await send(created.write_key, 'track', { ...message, messageId: 'as-user-name' });
    assert.equal(
      (
        await post('track', {
          ...message,
          event: 'Paid',
          messageId: 'in-the-body',
          writeKey: created.write_key,
        })
      ).status,
      200,
    );
    assert.deepEqual(
      (await eventsOf(appId)).map(({ event }) => event).filter((event) => event === 'Paid'),
      ['Paid'],
    );
  });

  test('with good and bad messages stores the good ones and says what is wrong with the others', async () => {
    const appId = newAppId();
    const good = { type: 'track', userId: 'ada', event: 'Ordered' };
    const bad = [
      { ...good, event: undefined },
      { ...good, userId: '' },
      { ...good, userId: true },
      { ...good, userId: 'x'.repeat(lengths.identityMax + 1) },
      { ...good, messageId: 7 },
      { ...good, properties: 'no' },
      { ...good, timestamp: 'yesterday' },
      { ...good, timestamp: 1_772_000_000 },
      { ...good, timestamp: '2999-01-01T00:00:00Z' },
      { ...good, type: 'tracked' },
      { type: 'identify', anonymousId, userId: 'null' },
      { type: 'identify', userId: 'ada', traits: [1] },
      { type: 'alias', userId: 'ada' },
      { type: 'alias', previousId: 'x', anonymousId },
      { type: 'group', userId: 'ada' },
      7,
    ];
    const reply = await post('batch', { batch: [good, ...bad] }, { authorization: basic(appId) });
    assert.equal(reply.status, 200);
    const { errors, ...counted } = reply.json;
    assert.deepEqual(counted, { success: true, accepted: 1, rejected: bad.length });
    assert.deepEqual(
      errors.map(({ code, field }: { code: string; field?: string }) => [code, field]),
      [
        ['missing_field', 'event'],
        ['missing_user', 'userId'],
        ['invalid_type', 'userId'],
        ['too_long', 'userId'],
        ['invalid_type', 'messageId'],
        ['invalid_type', 'properties'],
        ['invalid_timestamp', 'timestamp'],
        ['invalid_timestamp', 'timestamp'],
        ['timestamp_out_of_range', 'timestamp'],
        ['unknown_message_type', 'type'],
        ['merges_strangers', 'userId'],
        ['invalid_type', 'traits'],
        ['missing_field', 'previousId'],
        ['missing_field', 'userId'],
        ['missing_field', 'groupId'],
        ['invalid_type', undefined],
      ],
    );
    assert.match(errors[2].message, /^userId has the wrong type: it must be a string, but is a boolean\.$/);
    assert.equal((await eventsOf(appId)).length, 1);
    // Libraries send refused requests again for minutes, with nothing else meanwhile, or end their program.
    const all = await post('batch', { batch: bad }, { authorization: basic(appId) });
    const alone = errors.map((error: { index: number }) => ({ ...error, index: error.index - 1 }));
    assert.equal(all.status, 200);
    assert.deepEqual(all.json, { success: false, accepted: 0, rejected: bad.length, errors: alone });
    const one = await post('track', { userId: 'ada' }, { authorization: basic(appId) });
    assert.deepEqual([one.status, one.json.rejected, one.json.errors[0].field], [200, 1, 'event']);
    const tooMany = Array.from({ length: counts.segmentMessagesMax + 1 }, () => good);
    const large = await post('batch', { batch: tooMany }, { authorization: basic(appId) });
    assert.deepEqual([large.status, large.json.err.code], [400, 'too_many_records']);
    // The libraries for Python read the reason at the top of the answer.
    assert.deepEqual([large.json.code, large.json.message], ['too_many_records', large.json.err.message]);
    const unread = await post('batch', Buffer.from('{'), { authorization: basic(appId) });
    assert.deepEqual([unread.status, unread.json.code], [400, 'invalid_json']);
  });

  test('gives its context to its messages, unless they have their own', async () => {
    const appId = newAppId();
    const message = (event: string, context?: object) => ({ type: 'track', userId: 'ada', event, context });
    const context = { library: { name: 'analytics-go', version: '3' }, app: { name: 'shop' } };
    const batch = [message('a'), message('b', { app: { name: 'till' } })];
    await send(appId, 'batch', { batch, context });
    const rows = (await eventsOf(appId)) as { event: string; properties: Record<string, string> }[];
    const names = rows.map(({ event, properties }) => [
      event,
      properties['context.library.name'],
      properties['context.app.name'],
    ]);
    assert.deepEqual(names.sort(), [
      ['a', 'analytics-go', 'shop'],
      ['b', 'analytics-go', 'till'],
    ]);
  });

  test('an older value replaces nothing newer, whenever it arrives; values of one time count in the order of acceptance', async () => {
    const appId = newAppId();
    const traits = (timestamp: string, values: object, anonymous = false) => ({
      type: 'identify',
      ...(anonymous ? { anonymousId } : { userId: 'ada' }),
      traits: values,
      timestamp,
    });
    await send(appId, 'identify', { userId: 'ada', anonymousId });
    await post('../api/add_user_properties', {
      app_id: appId,
      identity: 'ada',
      properties: { fate: 'live', plan: 'pro' },
    });
    await send(appId, 'batch', {
      batch: [
        traits('2021-01-01T00:00:00Z', { email: 'new@example.com', same: 1, only: 'device' }, true),
        traits('2015-01-01T00:00:00Z', {
          email: 'old@example.com',
          note: 'archive',
          plan: 'archive',
          first: 'was',
        }),
        traits('2021-01-01T00:00:00Z', { same: 2 }),
      ],
    });
    // This call is made now, so it has the latest value.
    await send(appId, 'identify', { userId: 'ada', traits: { note: 'now' } });
    const [ada] = await usersOf(appId);
    const now = {
      email: 'new@example.com',
      fate: 'live',
      first: 'was',
      note: 'now',
      only: 'device',
      plan: 'pro',
      same: '2',
    };
    assert.deepEqual(ada?.properties, now);
    const seen = await fetch(`${sluice.adminUrl}/admin/v1/environments/${appId}/user`, {
      method: 'POST',
      headers: { authorization: `Bearer ${sluice.adminToken}`, 'content-type': 'application/json' },
      body: JSON.stringify({ identity: 'ada' }),
    });
    assert.deepEqual(((await seen.json()) as { properties: object }).properties, now);
    const wrong = await post('identify', traits('yesterday', { a: 1 }), { authorization: basic(appId) });
    assert.deepEqual(wrong.json.errors[0].code, 'invalid_timestamp');
  });

  test('counts its messages towards the limits of bulk requests, and says when there is room', async () => {
    const appId = appIds[0] as string;
    const of = (...users: string[]) => ({
      batch: users.map((userId) => ({ type: 'track', event: 'x', userId })),
    });
    await send(appId, 'batch', of('a', 'b'));
    const limited = await post('batch', of('a', 'b'), { authorization: basic(appId) });
    assert.equal(limited.status, 429);
    assert.match(limited.headers.get('retry-after') ?? '', /^\d+$/);
    const never = await post('batch', of('a', 'a', 'a'), { authorization: basic(appId) });
    assert.equal(never.json.err.code, 'too_large_for_limit');
    assert.equal((await eventsOf(appId)).length, 2);
  });
});
