// What the core needs from the platform it runs on. Each surface builds these once and passes them to `createClient`;
// the core itself touches no browser, no phone and no clock. None of these functions may throw.

/**
 * Text that outlives the page or the app. Reading and writing are synchronous. Where the device's own storage answers later (React Native),
 * everything is loaded before `whenReady` calls back, and writes reach the device later. Several tabs may share one storage, so the core
 * never does a read-modify-write of a value that two tabs could change.
 */
export type KeyValueStorage = {
  get(key: string): string | undefined;
  /**
   * Stores the text under the key. Returns false if it can be kept only in memory; after a restart the former text may then be back. `own`:
   * if the storage is emptied, this page puts the text back.
   */
  set(key: string, text: string, own?: true): boolean;
  remove(key: string): void;
  /** The keys that begin with the prefix, in any order. */
  keys(prefix: string): string[];
  /** Calls back after another tab has changed a key, or all keys (undefined). Absent where there are no other tabs. */
  onChange?(listener: (key: string | undefined) => void): void;
  /** Calls back once it is known what is stored under the key. Absent where everything is known from the start. */
  whenKnown?(key: string, callback: () => void): void;
};

/** One text for each app, which may be refused because of its size: the global event properties, or the visitor's choice. */
export type TextStore = {
  read(appId: string): string | undefined;
  /** Stores the text. Returns false if it does not fit; the former text then stays. */
  write(appId: string, text: string): boolean;
};

export type TransportAnswer = {
  /** HTTP status; 0 when no answer came (no network, blocked, timed out). */
  readonly status: number;
  readonly body: string;
  /** The value of the header `Retry-After`; undefined if there is none. */
  readonly retryAfter?: string | undefined;
};

export type Transport = {
  /** POSTs a text as `text/plain`; settles within about `timeoutMs`, never rejects. */
  send(url: string, body: string, timeoutMs: number): Sending;
  /**
   * POSTs a text in a way that outlives the page. Returns undefined if that is not possible, for example because too much is already being
   * sent. The promise never settles where the answer cannot be seen.
   */
  sendAtExit?(url: string, body: string): Promise<TransportAnswer> | undefined;
};

export type Sending = {
  readonly answer: Promise<TransportAnswer>;
  /** Whether the request continues when the page ends. */
  readonly outlivesPage: boolean;
};

export type Clock = {
  /** Milliseconds since 1970; may be wrong, and may jump. */
  now(): number;
  /** Calls back once, after `ms` at the earliest. Calling the result cancels it. */
  setTimer(ms: number, callback: () => void): () => void;
};

export type Lifecycle = {
  /**
   * Calls back once recording may begin: at once, when the storage has been loaded, or when a prerendered page is shown. Calls before that
   * wait in memory.
   */
  whenReady(callback: () => void): void;
  /** Calls back each time the page or app is hidden, after which it may end without notice. */
  onHide(listener: () => void): void;
  /** Calls back each time another attempt makes sense: the network is back, or the page or app is shown again. */
  onResume(listener: () => void): void;
};

/** Random bytes from a cryptographic source. */
export type RandomBytes = (count: number) => Uint8Array;

/** Ensures that only one tab sends at a time, as far as the browser can. */
export type SendingTurn = {
  /** Runs the work once no other tab runs work of this name, and settles when it is done. Never rejects. */
  take(name: string, work: () => Promise<void>): Promise<void>;
};

export type Adapters = {
  readonly storage: KeyValueStorage;
  /** The store of the global event properties. */
  readonly propertyStore: TextStore;
  /** A second place for the visitor's choice, since the page may empty `storage`. */
  readonly consentStore?: TextStore;
  readonly transport: Transport;
  readonly clock: Clock;
  /** When the current call was really made, if it waited before it reached the library. */
  readonly calledAtMs?: () => number | undefined;
  readonly lifecycle: Lifecycle;
  readonly randomBytes: RandomBytes;
  /** Default: only this client sends from this storage. */
  readonly turn?: SendingTurn;
  /** Shows one line to the developer; the core prefixes it with `Sluice: `. */
  readonly warn: (line: string) => void;
};
