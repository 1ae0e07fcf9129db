// The mobile surfaces against a whole service: what is done on the phone arrives in ClickHouse once, and the
// Event Visualizer shows it.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createIosSluice } from '../../src/libraries/client/ios.js';
import type { DeviceStorage } from '../../src/libraries/client/mobile/adapters.js';
import { createReactNativeSluice } from '../../src/libraries/client/react-native.js';
import { createEnvironment } from '../harness/accounts.js';
import type { CollectReply } from '../harness/collect.js';
import { readUsers } from '../harness/ingestion.js';
import { startTcpProxy } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';
import { openLivePage } from '../support/visualizer.js';

const runs: { kill(): void }[] = [];

const sluice = await sharedSluice();
const proxy = await startTcpProxy({ port: Number(new URL(sluice.baseUrl).port) });
const appId = await createEnvironment(sluice);

after(async () => {
  for (const run of runs) run.kill();
  await proxy.close();
});

/** What a phone keeps when an app ends; it answers later, as AsyncStorage does. */
function createDeviceStorage(): DeviceStorage {
  const texts = new Map<string, string>();
  return {
    getItem: async (key) => texts.get(key) ?? null,
    setItem: async (key, text) => void texts.set(key, text),
    removeItem: async (key) => void texts.delete(key),
    getAllKeys: async () => [...texts.keys()],
  };
}

/** One run of an app, with the platform's own `fetch` and clock, until it is killed. */
function openApp(storage: DeviceStorage) {
  const timers = new Set<NodeJS.Timeout>();
  const states = new Set<(state: string) => void>();
  const screens = new Set<(name: string) => void>();
  const requests = new AbortController();
  const codes: string[] = [];
  const warnings: string[] = [];
  const statuses: string[] = [];
  const unlessKilled = <T>(work: () => T): T | Promise<never> =>
    requests.signal.aborted ? new Promise<never>(() => {}) : work();
  const run = {
    codes,
    warnings,
    /** What the service answered about each message. */
    statuses,
    adapters: {
      storage: {
        getItem: (key: string) => unlessKilled(() => storage.getItem(key)),
        setItem: (key: string, text: string) => unlessKilled(() => storage.setItem(key, text)),
        removeItem: (key: string) => unlessKilled(() => storage.removeItem(key)),
        getAllKeys: () => unlessKilled(() => storage.getAllKeys()),
      },
      appState: {
        addEventListener: (_: 'change', listener: (state: string) => void) => states.add(listener),
      },
      onScreen: (listener: (name: string) => void) => screens.add(listener),
      showPairingCode: (code: string) => void codes.push(code),
      hidePairingCode: () => void codes.push(''),
      fetch: (url: string, init: object) =>
        unlessKilled(async () => {
          const reply = await fetch(url, { ...init, signal: requests.signal });
          const { messages = [] } = (await reply.clone().json()) as CollectReply['json'];
          statuses.push(...messages.map(({ status }) => status));
          return reply;
        }) as Promise<Response>,
    },
    runtime: {
      clock: {
        now: () => Date.now(),
        setTimer(ms: number, callback: () => void) {
          if (requests.signal.aborted) return () => {};
          const timer = setTimeout(callback, ms);
          timers.add(timer);
          return () => clearTimeout(timer);
        },
      },
      warn: (line: string) => void warnings.push(line),
    },
    showScreen(name: string) {
      for (const tell of screens) tell(name);
    },
    leaveFront() {
      for (const tell of states) tell('background');
    },
    comeToFront() {
      for (const tell of states) tell('active');
    },
    kill() {
      requests.abort();
      for (const timer of timers) clearTimeout(timer);
    },
  };
  runs.push(run);
  return run;
}

type Row = {
  readonly event: string;
  readonly event_id: string;
  readonly user_id: string | null;
  readonly identity: string;
  readonly session_id: string;
  readonly properties: Readonly<Record<string, string>>;
};

function storedEvents(appId: string): Promise<Row[]> {
  return sluice.rows<Row>(`SELECT event, event_id, toString(user_id) AS user_id, identity, session_id, properties
    FROM events WHERE app_id = '${appId}' ORDER BY segment, commit_number, row_number`);
}

async function untilStored(appId: string, count: number): Promise<Row[]> {
  return until(
    async () => {
      const rows = await storedEvents(appId);
      return rows.length >= count && rows;
    },
    { everyMs: 100, what: `${count} events are stored` },
  );
}

test('what React Native records arrives once, though replies are lost and the app is killed', async () => {
  const device = createDeviceStorage();
  const baseUrl = `http://127.0.0.1:${proxy.port}`;

  const first = openApp(device);
  const before = createReactNativeSluice();
  before.configure({ baseUrl, ...first.adapters, ...first.runtime });
  before.addEventProperties({ plan: 'free' });
  before.setAppId(appId);
  first.showScreen('Start');
  before.track('Order Completed', { amount: 12.5 });
  before.identify('ada@example.com');
  before.addUserProperties({ email: 'ada@example.com', age: 36 });
  before.track('Order Paid');
  const userId = await until(() => before.userId, 'the storage is loaded');
  proxy.dropReplies();
  first.leaveFront();
  const rows = await untilStored(appId, 3);
  before.track('Left Alone');
  await until(async () => (await device.getAllKeys()).length >= 7, 'the queue is in the storage');
  first.kill();
  proxy.reset();
  proxy.pass();

  const second = openApp(device);
  const again = createReactNativeSluice();
  again.configure({ baseUrl, ...second.adapters, ...second.runtime });
  again.setAppId(appId);
  again.track('Back Again');
  await until(() => again.userId, 'the storage is loaded');
  assert.deepEqual([again.userId, again.identity], [userId, 'ada@example.com']);
  second.leaveFront();
  // As far as the second run knows, the first run's last requests may still be under way; later it sends them again.
  await until(
    async () => {
      second.comeToFront();
      return !(await device.getAllKeys()).some((key) => key.includes(':q:'));
    },
    { everyMs: 500, what: 'the queue is empty' },
  );

  const stored = await untilStored(appId, 5);
  assert.deepEqual(stored.slice(0, 3), rows);
  assert.deepEqual(
    stored.map(({ event, user_id, identity, properties }) => [event, user_id, identity, properties]).sort(),
    [
      ['Back Again', null, 'ada@example.com', { plan: 'free' }],
      ['Left Alone', null, 'ada@example.com', { plan: 'free' }],
      ['Order Completed', userId, '', { amount: '12.5', plan: 'free' }],
      ['Order Paid', null, 'ada@example.com', { plan: 'free' }],
      ['Screen View', userId, '', { screen_name: 'Start', plan: 'free' }],
    ],
  );
  assert.equal(new Set(stored.map(({ event_id }) => event_id)).size, 5);
  const sessions = stored.map(({ event, session_id }) => [event === 'Back Again', session_id].join());
  assert.equal(new Set(sessions).size, 2, 'one session a run');
  assert.deepEqual(await readUsers(sluice, appId), [
    {
      identity: 'ada@example.com',
      user_ids: [userId],
      email: 'ada@example.com',
      properties: { age: '36', email: 'ada@example.com' },
    },
  ]);
  const repeats = second.statuses.filter((status) => status === 'repeat').length;
  assert.ok(repeats >= 5, `the second run sent again what the first did not know of: ${repeats}`);
  assert.deepEqual([first.warnings, second.warnings], [[], []]);
});

test('the Event Visualizer shows what an iPhone sends, from the code to the end', async (context) => {
  const run = openApp(createDeviceStorage());
  const ios = createIosSluice();
  ios.configure({ baseUrl: sluice.baseUrl, ...run.adapters, ...run.runtime });
  ios.setAppId(appId);
  ios.startEVPairing();
  const code = await until(() => run.codes[0], 'the code is shown');
  const page = openLivePage(sluice.adminUrl, { token: sluice.adminToken, code });
  context.after(() => page.socket.terminate());
  await page.heard('paired');
  ios.track('Order Completed', { amount: 12.5 });
  const [shown] = await page.untilShown(1);
  assert.deepEqual([shown?.event, shown?.user_id], ['Order Completed', ios.userId]);
  ios.stopEVPairing();
  await page.heard('ended');
  assert.deepEqual([run.codes, run.warnings], [[code, ''], []]);
});
