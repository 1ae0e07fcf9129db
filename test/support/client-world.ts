// The surroundings of a client library in tests: a clock that the test advances, storage that survives pages and that tabs share, and a
// server that keeps what it accepted and fails on demand.

import type {
  Adapters,
  Clock,
  KeyValueStorage,
  TransportAnswer,
} from '../../src/libraries/client/core/adapters.js';
import { createClient, type Settings } from '../../src/libraries/client/core/client.js';
import type { CollectRequest, Message, MessageAnswer } from '../../src/libraries/client/core/messages.js';
import { createStoredProperties } from '../../src/libraries/client/core/stored-properties.js';

export type TestClock = ReturnType<typeof createTestClock>;

export function createTestClock(startMs = Date.UTC(2026, 2, 1)) {
  type Timer = { readonly due: number; readonly order: number; readonly callback: () => void };
  const timers = new Set<Timer>();
  /** Timers follow this, which setting the clock does not change. */
  let elapsed = 0;
  let offset = startMs;
  let order = 0;

  function setTimer(ms: number, callback: () => void): () => void {
    const timer = { due: elapsed + Math.max(ms, 0), order: order++, callback };
    timers.add(timer);
    return () => timers.delete(timer);
  }

  /** Advances the clock, and runs each timer that becomes due with everything that follows from it. */
  async function advance(ms: number): Promise<void> {
    const end = elapsed + ms;
    await settle();
    for (;;) {
      const next = [...timers]
        .filter(({ due }) => due <= end)
        .sort((a, b) => a.due - b.due || a.order - b.order)[0];
      if (next === undefined) break;
      elapsed = Math.max(elapsed, next.due);
      timers.delete(next);
      next.callback();
      await settle();
    }
    elapsed = end;
  }

  return {
    now: () => offset + elapsed,
    setTimer,
    advance,
    /** Sets the clock without running anything. */
    set: (ms: number): void => {
      offset = ms - elapsed;
    },
    timerCount: () => timers.size,
    /** A clock for one page; its timers end with the page. */
    page(): Clock & { end(): void } {
      let ended = false;
      return {
        now: () => offset + elapsed,
        setTimer: (ms, callback) => (ended ? () => {} : setTimer(ms, () => !ended && callback())),
        end: () => {
          ended = true;
        },
      };
    },
  };
}

/** Lets every promise that can settle do so. */
export async function settle(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

/** Storage that tabs share: each tab has a view, whose listeners hear of the changes by others. */
export function createSharedStorage() {
  const texts = new Map<string, string>();
  const views: { listeners: ((key: string | undefined) => void)[] }[] = [];
  return {
    texts,
    view(): KeyValueStorage {
      const own = { listeners: [] as ((key: string | undefined) => void)[] };
      views.push(own);
      return {
        get: (key) => texts.get(key),
        set: (key, text) => {
          texts.set(key, text);
          for (const view of views) if (view !== own) for (const tell of view.listeners) tell(key);
          return true;
        },
        remove: (key) => {
          texts.delete(key);
        },
        keys: (prefix) => [...texts.keys()].filter((key) => key.startsWith(prefix)),
        onChange: (listener) => {
          own.listeners.push(listener);
        },
      };
    },
  };
}

/**
 * Storage that tabs of different processes share: each sees its own writes at once and the writes of others after `ms`. All
 * tabs see the same order of writes.
 */
export function createLateStorage(clock: Clock, ms: () => number) {
  type View = {
    readonly texts: Map<string, string>;
    readonly pending: Map<string, number>;
    readonly listeners: ((key: string | undefined) => void)[];
  };
  const kept = new Map<string, string>();
  const views = new Set<View>();
  let lastAt = 0;

  function write(from: View, key: string, text: string | undefined): boolean {
    put(from.texts, key, text);
    from.pending.set(key, (from.pending.get(key) ?? 0) + 1);
    // No write overtakes another.
    lastAt = Math.max(lastAt, clock.now() + ms());
    clock.setTimer(lastAt - clock.now(), () => {
      put(kept, key, text);
      from.pending.set(key, (from.pending.get(key) ?? 0) - 1);
      for (const view of views) {
        // The tab's own later writes come later in the order.
        if (view === from || (view.pending.get(key) ?? 0) > 0) continue;
        put(view.texts, key, text);
        for (const tell of view.listeners) tell(key);
      }
    });
    return true;
  }

  return {
    kept,
    view(): KeyValueStorage {
      const own: View = { texts: new Map(kept), pending: new Map(), listeners: [] };
      views.add(own);
      return {
        get: (key) => own.texts.get(key),
        set: (key, text) => write(own, key, text),
        remove: (key) => void write(own, key, undefined),
        keys: (prefix) => [...own.texts.keys()].filter((key) => key.startsWith(prefix)),
        onChange: (listener) => void own.listeners.push(listener),
      };
    },
  };
}

function put(texts: Map<string, string>, key: string, text: string | undefined): void {
  if (text === undefined) texts.delete(key);
  else texts.set(key, text);
}

export type ReceivedRequest = {
  readonly url: string;
  readonly body: string;
  readonly request: CollectRequest;
};

/**
 * A server by the rules of `POST /api/collect`: it stores each id once, and answers each message. `answerWith` sees each
 * request first and may answer in its place; if it returns undefined, the server handles the request.
 */
export function createTestServer() {
  const received: ReceivedRequest[] = [];
  const stored: Message[] = [];
  const ids = new Set<string>();
  const server = {
    received,
    stored,
    /** Events by name, in the order of acceptance. */
    events: (): string[] => stored.flatMap((message) => (message.type === 'event' ? [message.event] : [])),
    answerWith: (_: ReceivedRequest): TransportAnswer | undefined => undefined,
    answerMessage: (_: Message): MessageAnswer | undefined => undefined,
    take(url: string, body: string): TransportAnswer {
      const one = { url, body, request: JSON.parse(body) as CollectRequest };
      received.push(one);
      return server.answerWith(one) ?? server.accept(one.request);
    },
    accept({ messages }: CollectRequest): TransportAnswer {
      const answers = messages.map((message): MessageAnswer => {
        const refusal = server.answerMessage(message);
        if (refusal !== undefined) return refusal;
        if (ids.has(message.id)) return { id: message.id, status: 'repeat' };
        ids.add(message.id);
        stored.push(message);
        return { id: message.id, status: 'stored' };
      });
      return { status: 200, body: JSON.stringify({ messages: answers }) };
    },
  };
  return server;
}

export type TestServer = ReturnType<typeof createTestServer>;

export function failure(status: number, code = '', retryAfter?: string): TransportAnswer {
  const answer = { status, body: status === 0 ? '' : JSON.stringify({ err: { code, message: code } }) };
  return retryAfter === undefined ? answer : { ...answer, retryAfter };
}

export const testSettings: Settings = {
  baseUrl: 'https://events.example',
  intervalMs: 3_000,
  sessionIdleMs: 30 * 60_000,
  sessionPerStart: false,
};

export type World = ReturnType<typeof createWorld>;
export type TestPage = ReturnType<World['open']>;

type PageOptions = Partial<Adapters> & { ready?: boolean };

/** The kind of visit: `first` has no user yet, so nothing is sent at once; `later` already has users of the apps 1 to 3. */
export type Visit = 'first' | 'later';

export function rememberVisit(visit: Visit, texts: Map<string, string>): void {
  if (visit === 'first') return;
  for (const app of [1, 2, 3]) texts.set(`sluice:${app}:user`, `{"id":"900719925474099${app}"}`);
}

/** Random bytes that are the same in every run, by a linear congruential generator. */
export function createRandomBytes(): (count: number) => Uint8Array {
  let seed = 1;
  return (count) =>
    Uint8Array.from({ length: count }, () => {
      seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
      return seed >>> 24;
    });
}

/** Pages over one storage, one server and one clock. */
export function createWorld(visit: Visit = 'later') {
  const clock = createTestClock();
  const server = createTestServer();
  const shared = createSharedStorage();
  rememberVisit(visit, shared.texts);
  const randomBytes = createRandomBytes();

  /** Opens a page or an app with the storage of the previous one. */
  function open(options: PageOptions = {}) {
    const { ready = true, ...adapters } = options;
    const own = clock.page();
    const warnings: string[] = [];
    const hideListeners: (() => void)[] = [];
    const resumeListeners: (() => void)[] = [];
    const readyListeners: (() => void)[] = [];
    let ended = false;
    const answer = async (url: string, body: string): Promise<TransportAnswer> => {
      await Promise.resolve();
      if (ended) return new Promise(() => {});
      const taken = server.take(url, body);
      await Promise.resolve();
      return ended ? new Promise(() => {}) : taken;
    };
    const storage = adapters.storage ?? shared.view();
    const client = createClient({
      storage,
      propertyStore: createStoredProperties(storage),
      transport: {
        send: (url, body) => ({ answer: answer(url, body), outlivesPage: false }),
        sendAtExit: (url, body) => {
          const taken = server.take(url, body);
          return Promise.resolve().then(() => (ended ? new Promise(() => {}) : taken));
        },
      },
      clock: own,
      lifecycle: {
        whenReady: (callback) => (ready ? callback() : readyListeners.push(callback)),
        onHide: (listener) => hideListeners.push(listener),
        onResume: (listener) => resumeListeners.push(listener),
      },
      randomBytes,
      warn: (line) => warnings.push(line),
      ...adapters,
    });
    return {
      client,
      warnings,
      storage,
      /** Fires the event after which the page may end. */
      hide: () => hideListeners.map((listener) => listener()),
      resume: () => resumeListeners.map((listener) => listener()),
      /** Lets recording begin, for pages that were opened with `ready: false`. */
      makeReady: () => readyListeners.map((listener) => listener()),
      /** Ends the page at once: its timers stop, and no pending answer reaches it. */
      crash: () => {
        ended = true;
        own.end();
      },
    };
  }

  /** The same, and starts it for the app 1. */
  function start(options: PageOptions = {}, settings: Partial<Settings> = {}) {
    const page = open(options);
    page.client.start('1', { ...testSettings, ...settings });
    return page;
  }

  return { clock, server, texts: shared.texts, open, start };
}
