// Windows of one simulated browser, with the parts that the client library uses. Tabs share cookies, storage and locks. Unlike the real
// browsers of other tests, this one can be made to refuse, to crash and to wait.

import { webcrypto } from 'node:crypto';
import type { FetchResponse } from '../../src/libraries/client/core/fetching.js';
import type { PageEvent, WebStorage, Window } from '../../src/libraries/client/web/browser.js';
import {
  createTestClock,
  createTestServer,
  rememberVisit,
  type TestClock,
  type TestServer,
  type Visit,
} from './client-world.js';

export type TestWindow = Window & {
  readonly warnings: string[];
  readonly fetched: {
    readonly url: string;
    readonly keepalive: boolean;
    readonly options: Record<string, unknown>;
  }[];
  readonly beacons: string[];
  go(url: string): void;
  fire(type: string, event?: PageEvent): void;
  setVisibility(state: 'visible' | 'hidden'): void;
  activate(): void;
  /** Empties the storage, as a page may. */
  clearStorage(): void;
  /** Ends the tab with its timers and locks. Pending answers never reach it. */
  end(): void;
};

export type TestBrowser = ReturnType<typeof createTestBrowser>;

export type WindowOptions = {
  readonly url?: string;
  readonly title?: string;
  readonly referrer?: string;
  readonly prerendering?: boolean;
  /** `silent`: silently stores nothing. */
  readonly localStorage?: 'denied' | 'full' | 'absent' | 'silent';
  readonly cookies?: 'denied' | 'ignored';
  readonly locks?: 'absent' | 'denied';
  readonly keepalive?: 'absent';
  readonly fetch?: 'absent' | 'throws' | 'never';
  readonly beacon?: 'refused';
  readonly more?: Partial<Window>;
};

export function createTestBrowser(visit: Visit = 'later') {
  const clock = createTestClock();
  const server = createTestServer();
  const cookies = new Map<string, string>();
  const cookieWrites: string[] = [];
  const storage = new Map<string, string>();
  rememberVisit(visit, storage);
  const windows: { win: TestWindow; listeners: Map<string, ((event: PageEvent) => void)[]> }[] = [];
  const locks = createLocks();

  function open(options: WindowOptions = {}): TestWindow {
    const own = clock.page();
    const listeners = new Map<string, ((event: PageEvent) => void)[]>();
    const warnings: string[] = [];
    const fetched: TestWindow['fetched'] = [];
    const beacons: string[] = [];
    let ended = false;
    let address = new URL(options.url ?? 'https://shop.example/start?q=1#top');
    let visibility = 'visible';
    let prerendering = options.prerendering ?? false;
    let title = options.title ?? 'Start';
    const lockHolder = {};

    const on = (type: string, listener: (event: PageEvent) => void): void => {
      listeners.set(type, [...(listeners.get(type) ?? []), listener]);
    };
    const fire = (type: string, event: PageEvent = {}): void => {
      for (const listener of listeners.get(type) ?? []) if (!ended) listener(event);
    };

    async function fetch(url: string, init: object): Promise<FetchResponse> {
      const request = init as { body: string; keepalive: boolean; signal?: AbortSignal };
      fetched.push({ url, keepalive: request.keepalive, options: init as Record<string, unknown> });
      const taken = await new Promise<ReturnType<TestServer['take']>>((resolve, reject) => {
        if (options.fetch === 'never') {
          request.signal?.addEventListener('abort', () => reject(new Error('aborted')));
          return;
        }
        resolve(server.take(url, request.body));
      });
      if (ended) return new Promise(() => {});
      if (taken.status === 0) throw new TypeError('Failed to fetch');
      return {
        status: taken.status,
        headers: {
          get: (name) => (name.toLowerCase() === 'retry-after' ? (taken.retryAfter ?? null) : null),
        },
        text: async () => taken.body,
      };
    }

    const document = {
      get title() {
        return title;
      },
      set title(text: string) {
        title = text;
      },
      get referrer() {
        return options.referrer ?? '';
      },
      get visibilityState() {
        return visibility;
      },
      get prerendering() {
        return prerendering;
      },
      get cookie() {
        if (options.cookies === 'denied') throw new Error('SecurityError');
        return [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
      },
      set cookie(text: string) {
        if (options.cookies === 'denied') throw new Error('SecurityError');
        if (options.cookies === 'ignored') return;
        cookieWrites.push(text);
        const [pair = '', ...attributes] = text.split(';');
        const [name = ''] = pair.split('=', 1);
        if (pair.length > 4097) return;
        if (attributes.includes('max-age=0')) cookies.delete(name);
        else cookies.set(name, pair.slice(name.length + 1));
      },
      addEventListener: on,
    };

    const win = {
      warnings,
      fetched,
      beacons,
      document,
      location: {
        get href() {
          return address.href;
        },
        get protocol() {
          return address.protocol;
        },
        get pathname() {
          return address.pathname;
        },
      },
      history: {
        pushState(_: unknown, __: unknown, url: unknown) {
          address = new URL(String(url), address);
        },
        replaceState(_: unknown, __: unknown, url: unknown) {
          address = new URL(String(url), address);
        },
      },
      get localStorage() {
        if (options.localStorage === 'denied') throw new Error('SecurityError');
        if (options.localStorage === 'absent') return undefined;
        return createWebStorage(
          storage,
          () => options.localStorage,
          (key) => notifyOtherTabs(win, key),
        );
      },
      navigator: {
        locks:
          options.locks === 'absent'
            ? undefined
            : { request: options.locks === 'denied' ? denied : locks.forTab(lockHolder) },
        sendBeacon(url: string, body: string) {
          if (options.beacon === 'refused') return false;
          beacons.push(body);
          server.take(url, body);
          return true;
        },
      },
      crypto: webcrypto as unknown as NonNullable<Window['crypto']>,
      console: { warn: (line: string) => void warnings.push(line) },
      Request: { prototype: options.keepalive === 'absent' ? {} : { keepalive: false } },
      AbortController,
      Date: dateOf(clock),
      fetch:
        options.fetch === 'absent'
          ? undefined
          : options.fetch === 'throws'
            ? () => {
                throw new Error('wrapped by the page');
              }
            : fetch,
      setTimeout: (callback: () => void, ms: number) => own.setTimer(ms, callback),
      clearTimeout: (cancel: unknown) => typeof cancel === 'function' && cancel(),
      addEventListener: on,
      fire,
      go(url: string) {
        address = new URL(url, address);
      },
      setVisibility(state: 'visible' | 'hidden') {
        visibility = state;
        fire('visibilitychange');
      },
      clearStorage() {
        storage.clear();
        notifyOtherTabs(win, null);
      },
      activate() {
        prerendering = false;
        fire('prerenderingchange');
      },
      end() {
        ended = true;
        own.end();
        locks.drop(lockHolder);
      },
      ...options.more,
    } as unknown as TestWindow;
    windows.push({ win, listeners });
    return win;
  }

  function notifyOtherTabs(from: TestWindow, key: string | null): void {
    for (const { win } of windows) if (win !== from) win.fire('storage', { key });
  }

  return { clock, server, cookies, cookieWrites, storage, open };
}

/** A `localStorage` whose own properties are its keys. As in browsers, a write that changes nothing causes no event. */
function createWebStorage(
  storage: Map<string, string>,
  state: () => WindowOptions['localStorage'],
  onChange: (key: string) => void,
): WebStorage {
  const methods: WebStorage = {
    getItem: (key) => storage.get(key) ?? null,
    setItem(key, text) {
      if (state() === 'full') throw new Error('QuotaExceededError');
      if (state() === 'silent') return;
      if (storage.get(key) === text) return;
      storage.set(key, text);
      onChange(key);
    },
    removeItem(key) {
      if (storage.delete(key)) onChange(key);
    },
  };
  return new Proxy(Object.create(methods), {
    ownKeys: () => [...storage.keys()],
    getOwnPropertyDescriptor: (_, key) => ({
      value: storage.get(String(key)),
      enumerable: true,
      configurable: true,
    }),
  });
}

function dateOf(clock: TestClock): DateConstructor {
  return class extends Date {
    constructor(ms?: number) {
      super(ms ?? clock.now());
    }
    static override now(): number {
      return clock.now();
    }
  } as DateConstructor;
}

function denied(): Promise<never> {
  return Promise.reject(new Error('SecurityError'));
}

/** The locks of a browser: each name has one holder, and a tab that ends releases its locks. */
function createLocks() {
  type Wish = { readonly tab: object; readonly work: () => Promise<void>; readonly done: () => void };
  const queues = new Map<string, Wish[]>();

  function begin(name: string): void {
    const wish = queues.get(name)?.[0];
    if (wish === undefined) return;
    void wish.work().finally(() => release(name, wish));
  }

  function release(name: string, wish: Wish): void {
    const queue = queues.get(name) ?? [];
    const wasFirst = queue[0] === wish;
    const at = queue.indexOf(wish);
    if (at >= 0) queue.splice(at, 1);
    wish.done();
    if (wasFirst) begin(name);
  }

  return {
    forTab: (tab: object) => (name: string, work: () => Promise<void>) =>
      new Promise<void>((done) => {
        const queue = queues.get(name) ?? [];
        queues.set(name, queue);
        queue.push({ tab, work, done });
        if (queue.length === 1) queueMicrotask(() => begin(name));
      }),
    drop(tab: object) {
      for (const [name, queue] of queues)
        for (const wish of [...queue]) if (wish.tab === tab) release(name, wish);
    },
  };
}
