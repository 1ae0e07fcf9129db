// What the library uses of a browser's window, looked up once, at its start. It keeps using the `fetch`, timers and clock of that moment,
// even if a page replaces them later. A page may replace everything else, and the browser may deny it (a sandboxed frame has no storage).
// Nothing here throws, unless its comment says so.

import type { FetchResponse } from '../core/fetching.js';

/** The window or its substitute. Every property may be absent. It is passed in, never taken from the global scope. */
export type Window = {
  readonly document?: PageDocument;
  readonly location?: { readonly href: string; readonly protocol: string; readonly pathname: string };
  readonly history?: PageHistory;
  readonly navigation?: { addEventListener(type: string, listener: () => void): void };
  readonly localStorage?: WebStorage;
  /** The snippet's stub, or the library. */
  sluice?: unknown;
  readonly navigator?: {
    readonly locks?: LockManager;
    readonly globalPrivacyControl?: boolean;
    sendBeacon?(url: string, body: string): boolean;
  };
  readonly crypto?: { getRandomValues(bytes: Uint8Array): Uint8Array };
  readonly console?: { warn?(line: string): void };
  readonly Date: { now(): number };
  readonly performance?: { now(): number };
  readonly EventTarget?: { readonly prototype: { addEventListener: Listen } };
  readonly Request?: { readonly prototype: object };
  readonly AbortController?: new () => { readonly signal: unknown; abort(): void };
  fetch?(url: string, options: object): Promise<FetchResponse>;
  setTimeout(callback: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
  addEventListener?: Listen;
};

type Listen = (type: string, listener: (event: PageEvent) => void) => void;

export type PageDocument = {
  cookie: string;
  readonly title: string;
  readonly referrer: string;
  readonly visibilityState?: string;
  readonly prerendering?: boolean;
  addEventListener: Listen;
};

export type PageHistory = {
  pushState(...args: unknown[]): unknown;
  replaceState(...args: unknown[]): unknown;
};

/** Its keys are its own properties. Every use may throw. */
export type WebStorage = {
  getItem(key: string): string | null;
  setItem(key: string, text: string): void;
  removeItem(key: string): void;
};

export type LockManager = {
  request(name: string, work: () => Promise<void>): Promise<unknown>;
};

/** For a `storage` event: what another tab changed. For `pageshow`: whether the page comes from the browser's cache. */
export type PageEvent = {
  readonly key?: string | null;
  readonly newValue?: string | null;
  readonly persisted?: boolean;
};

/** The properties of a document that are read as text. */
type DocumentText = 'cookie' | 'title' | 'referrer' | 'visibilityState';

export type Browser = ReturnType<typeof takeBrowser>;

/** Shows a line in the console that the window has at the time of the call. May throw. */
export function warnIn(window: Window): (line: string) => void {
  return (line) => window.console?.warn?.(line);
}

export function takeBrowser(window: Window) {
  const take = <T>(read: () => T): T | undefined => {
    try {
      return read();
    } catch {
      return undefined;
    }
  };
  const document = take(() => window.document);
  const navigator = take(() => window.navigator);
  const crypto = take(() => window.crypto);
  const AbortController = take(() => window.AbortController);
  const fetch = take(() => window.fetch);
  const { setTimeout, clearTimeout } = window;
  const listen = take(() => window.EventTarget?.prototype.addEventListener);

  /** Read through the document's class, because `<img name="cookie">` replaces the document's own property. */
  function inherited(name: DocumentText): PropertyDescriptor | undefined {
    let holder: unknown = document;
    while (holder) {
      holder = Object.getPrototypeOf(holder);
      const found = holder && Object.getOwnPropertyDescriptor(holder, name);
      if (found) return found;
    }
    return undefined;
  }

  /** `''` if the text is denied. */
  function readText(name: DocumentText): string {
    const text: unknown = take(() => {
      const own: unknown = document?.[name];
      return typeof own === 'string' ? own : inherited(name)?.get?.call(document);
    });
    return typeof text === 'string' ? text : '';
  }

  return {
    /** Whether this is a page. On a server nothing below is available. */
    isPage: document !== undefined,
    readText,
    setCookie: (cookie: string) =>
      void take(() => {
        if (document === undefined) return;
        if (typeof document.cookie === 'string') document.cookie = cookie;
        else inherited('cookie')?.set?.call(document, cookie);
      }),
    isPrerendering: () => take(() => document?.prerendering) === true,
    location: take(() => window.location),
    history: take(() => window.history),
    navigation: take(() => window.navigation),
    storage: take(() => window.localStorage) ?? undefined,
    locks: take(() => navigator?.locks),
    /** Whether the visitor has switched on Global Privacy Control. @see https://www.w3.org/TR/gpc/ */
    hasPrivacyControl: () => take(() => navigator?.globalPrivacyControl) === true,
    /** Whether the browser accepted the beacon. */
    sendBeacon: (url: string, body: string) => take(() => navigator?.sendBeacon?.(url, body)) === true,
    /** Fills the bytes if there is a working cryptographic source. */
    randomBytes: (bytes: Uint8Array) => void take(() => crypto?.getRandomValues(bytes)),
    warn: warnIn(window),
    now: createNow(window),
    setTimer(ms: number, callback: () => void): () => void {
      const timer = setTimeout.call(window, () => take(callback), ms);
      return () => clearTimeout.call(window, timer);
    },
    /** Whether a request can outlive its page. */
    hasKeepalive: take(() => 'keepalive' in (window.Request?.prototype ?? {})) === true,
    newAbort: () => take(() => AbortController && new AbortController()),
    /** May throw or reject; undefined if there is none. */
    fetch: fetch && ((url: string, options: object) => fetch.call(window, url, options)),
    on(target: 'document' | 'window', type: string, listener: (event: PageEvent) => void): void {
      take(() => {
        const from = target === 'window' ? window : document;
        (listen ?? from?.addEventListener)?.call(from, type, listener);
      });
    },
  };
}

/** The time of the page's `Date`. It continues if that is stopped, as tests of pages do. */
function createNow(window: Window): () => number {
  const { Date: clock, performance } = window;
  const { now } = clock;
  const sinceStart = performance?.now;
  const elapsed = (): number => sinceStart?.call(performance) ?? 0;
  let last = now.call(clock);
  let seenAt = elapsed();
  return () => {
    const ms = now.call(clock);
    if (ms !== last) seenAt = elapsed();
    last = ms;
    return ms + Math.floor(elapsed() - seenAt);
  };
}
