// A simulated phone for tests of the mobile surfaces: asynchronous storage that survives its apps, a network that leads to a test server,
// and sensors and a clock that tests control.

import { createAndroidSluice } from '../../src/libraries/client/android.js';
import type { Clock, TransportAnswer } from '../../src/libraries/client/core/adapters.js';
import { createIosSluice } from '../../src/libraries/client/ios.js';
import type {
  DeviceAdapters,
  DeviceStorage,
  PairingAdapters,
  RuntimeAdapters,
} from '../../src/libraries/client/mobile/adapters.js';
import { createReactNativeSluice } from '../../src/libraries/client/react-native.js';
import { createRandomBytes, createTestClock, createTestServer, settle } from './client-world.js';

export const baseUrl = 'https://events.example';

type Adapters = DeviceAdapters & PairingAdapters & RuntimeAdapters;

export type Phone = ReturnType<typeof createPhone>;

export type TestStorage = DeviceStorage & {
  readonly texts: Map<string, string>;
  /** The calls so far, such as `getItem sluice:1:user`. */
  readonly calls: string[];
  /** The storage awaits this before each answer; it may reject. */
  before: (call: string) => Promise<void>;
};

export type TestPairings = {
  /** The bodies of requests for a pairing, and of requests to stop one. */
  readonly asked: unknown[];
  readonly stopped: unknown[];
  answer: () => TransportAnswer | Promise<TransportAnswer>;
};

/** An empty phone, with a server that accepts everything. */
export function createPhone() {
  const clock = createTestClock();
  const server = createTestServer();
  const storage = createTestStorage();
  const pairings: TestPairings = {
    asked: [],
    stopped: [],
    answer: () => opened(`secret-${pairings.asked.length}`, `COD-${pairings.asked.length}`),
  };

  async function answerTo(url: string, body: string): Promise<TransportAnswer> {
    await Promise.resolve();
    if (url === `${baseUrl}/api/visualizer/pairings`) {
      pairings.asked.push(JSON.parse(body));
      return pairings.answer();
    }
    if (url === `${baseUrl}/api/visualizer/pairings/stop`) {
      pairings.stopped.push(JSON.parse(body));
      return { status: 200, body: '{}' };
    }
    return server.take(url, body);
  }

  const randomBytes = createRandomBytes();

  /** One run of an app on the phone, from its start until it is killed. */
  function open(overrides: Partial<Adapters> = {}) {
    const own: Clock & { end(): void } = clock.page();
    const [states, screens, networks, shakes] = [
      createListeners<string>(),
      createListeners<string>(),
      createListeners<void>(),
      createListeners<void>(),
    ];
    const warnings: string[] = [];
    /** The codes that were shown; `''` each time a code was hidden. */
    const codes: string[] = [];
    let killed = false;
    const unlessKilled = <T>(work: () => Promise<T>): Promise<T> =>
      killed ? new Promise(() => {}) : work().then((result) => (killed ? new Promise(() => {}) : result));
    /** What the app passes to the surface. */
    const adapters: Adapters & { readonly baseUrl: string } = {
      baseUrl,
      storage: {
        getItem: (key: string) => unlessKilled(async () => storage.getItem(key)),
        setItem: (key: string, text: string) => unlessKilled(async () => storage.setItem(key, text)),
        removeItem: (key: string) => unlessKilled(async () => storage.removeItem(key)),
        getAllKeys: () => unlessKilled(async () => storage.getAllKeys()),
      },
      appState: {
        addEventListener: (_: 'change', listener: (state: string) => void) => states.add(listener),
      },
      onScreen: screens.add,
      onOnline: networks.add,
      onShake: shakes.add,
      showPairingCode: (code: string) => void codes.push(code),
      hidePairingCode: () => void codes.push(''),
      clock: own,
      randomBytes,
      warn: (line: string) => void warnings.push(line),
      fetch: async (url: string, init: { method: string; headers: object; body: string }) => {
        if (init.method !== 'POST' || !JSON.stringify(init.headers).includes('text/plain')) {
          throw new Error('not a request that needs no preflight');
        }
        const { status, body, retryAfter } = await unlessKilled(() => answerTo(url, init.body));
        if (status === 0) throw new TypeError('Network request failed');
        return {
          status,
          headers: { get: (name: string) => (name === 'Retry-After' ? (retryAfter ?? null) : null) },
          text: async () => body,
        };
      },
      ...overrides,
    };
    return {
      adapters,
      warnings,
      codes,
      leaveFront() {
        for (const state of ['inactive', 'background']) states.notify(state);
      },
      comeToFront: () => states.notify('active'),
      networkBack: () => networks.notify(),
      showScreen: screens.notify,
      shake: () => shakes.notify(),
      shakeListenerCount: shakes.count,
      /** Ends the app at once: no further timer fires, no pending answer reaches it, nothing more is written. */
      kill() {
        killed = true;
        own.end();
      },
    };
  }

  return { clock, server, storage, pairings, open };
}

/** An app on the phone with a configured surface; `start…` have also set the environment 1. */
export function openReactNative(phone = createPhone(), run = phone.open()) {
  const sluice = createReactNativeSluice();
  sluice.configure(run.adapters);
  return { phone, run, sluice };
}

export function openIos(phone = createPhone(), run = phone.open()) {
  const sluice = createIosSluice();
  sluice.configure(run.adapters);
  return { phone, run, sluice };
}

export function openAndroid(phone = createPhone(), run = phone.open()) {
  const sluice = createAndroidSluice();
  const { baseUrl, clock, randomBytes, warn, ...context } = run.adapters;
  sluice.configure({ baseUrl, clock, randomBytes, warn });
  return { phone, run, sluice, context };
}

export function startReactNative(phone?: Phone) {
  const opened = openReactNative(phone);
  opened.sluice.setAppId('1');
  return opened;
}

export function startIos(phone?: Phone) {
  const opened = openIos(phone);
  opened.sluice.setAppId('1');
  return opened;
}

export function startAndroid(phone?: Phone) {
  const opened = openAndroid(phone);
  opened.sluice.init(opened.context, '1');
  return opened;
}

function createListeners<T>() {
  const listeners = new Set<(value: T) => void>();
  return {
    add(listener: (value: T) => void) {
      listeners.add(listener);
      return { remove: () => void listeners.delete(listener) };
    },
    notify(value: T): void {
      for (const listener of listeners) listener(value);
    },
    count: () => listeners.size,
  };
}

function createTestStorage(): TestStorage {
  const texts = new Map<string, string>();
  const calls: string[] = [];
  async function call<T>(name: string, work: () => T): Promise<T> {
    calls.push(name);
    await storage.before(name);
    return work();
  }
  const storage: TestStorage = {
    texts,
    calls,
    before: async () => {},
    getItem: (key) => call(`getItem ${key}`, () => texts.get(key) ?? null),
    setItem: (key, text) => call(`setItem ${key}`, () => void texts.set(key, text)),
    removeItem: (key) => call(`removeItem ${key}`, () => void texts.delete(key)),
    getAllKeys: () => call('getAllKeys', () => [...texts.keys()]),
  };
  return storage;
}

export function opened(pairing: string, code: string, expires_in: unknown = 600): TransportAnswer {
  return { status: 201, body: JSON.stringify({ pairing, code, expires_in }) };
}

export { settle };
