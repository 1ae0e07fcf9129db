// As much of a browser's window as the library uses. Everything may be absent, and reading some of it throws (a
// sandboxed frame has no storage), so that each file here reads its part with care. Handed over by the script,
// never taken from the global scope.

export type Browser = {
  readonly document?: PageDocument;
  readonly location?: { readonly href: string; readonly protocol: string; readonly pathname: string };
  readonly history?: { pushState(...args: unknown[]): unknown };
  readonly localStorage?: WebStorage;
  /** The snippet's stand-in, or the library. */
  sluice?: unknown;
  readonly navigator?: {
    readonly locks?: LockManager;
    sendBeacon?(url: string, body: string): boolean;
  };
  readonly crypto?: { getRandomValues(bytes: Uint8Array): Uint8Array };
  readonly console?: { warn?(line: string): void };
  readonly Date: { now(): number };
  readonly Request?: { readonly prototype: object };
  readonly AbortController?: new () => { readonly signal: unknown; abort(): void };
  fetch?(url: string, options: object): Promise<FetchResponse>;
  setTimeout(callback: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
  addEventListener?(type: string, listener: (event: PageEvent) => void): void;
};

export type PageDocument = {
  cookie: string;
  readonly title: string;
  readonly referrer: string;
  readonly visibilityState?: string;
  readonly prerendering?: boolean;
  addEventListener(type: string, listener: () => void, options?: { once: boolean }): void;
};

/** Its own properties are its keys. */
export type WebStorage = {
  getItem(key: string): string | null;
  setItem(key: string, text: string): void;
  removeItem(key: string): void;
};

export type LockManager = {
  request(name: string, work: () => Promise<void>): Promise<unknown>;
};

export type FetchResponse = {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
};

/** Of a `storage` event: what another tab changed; of `pageshow`: whether the page was kept. */
export type PageEvent = {
  readonly key?: string | null;
  readonly persisted?: boolean;
};
