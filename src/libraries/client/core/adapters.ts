// What the core needs from the platform it runs on. Each surface builds these once and passes them to `createClient`;
// the core itself touches no browser, no phone and no clock. None of these functions may throw.

/**
 * Text that outlives the page or the app. Reading and writing are synchronous. Where the device's own storage answers
 * later (React Native), everything is loaded before `whenReady` calls back, and writes reach the device later. Several
 * tabs may share one storage, so the core never reads, changes and writes back a value that two of them could change.
 */
export type KeyValueStorage = {
  get(key: string): string | undefined;
  /**
   * Keeps the text under the key. Returns false if it can be kept in memory only; then the former text may be back after
   * a restart. `own`: if the storage is emptied, this page puts the text back.
   */
  set(key: string, text: string, own?: true): boolean;
  remove(key: string): void;
  /** The keys that begin with the prefix, in any order. */
  keys(prefix: string): string[];
  /** Calls back after another tab has changed a key, or all keys (undefined). Absent where there are no other tabs. */
  onChange?(listener: (key: string | undefined) => void): void;
  /** Calls back once it is known what is kept under the key. Absent where everything is known from the start. */
  whenKnown?(key: string, callback: () => void): void;
};

/** One text per app, which may be refused for its size: the global event properties, or the visitor's choice. */
export type TextStore = {
  read(appId: string): string | undefined;
  /** Keeps the text. Returns false if it does not fit; then the former text stays. */
  write(appId: string, text: string): boolean;
};

export type TransportAnswer = {
  /** HTTP status; 0 when no answer came (no network, blocked, timed out). */
  readonly status: number;
  readonly body: string;
  /** The header `Retry-After` as it came; undefined without one. */
  readonly retryAfter?: string | undefined;
};

export type Transport = {
  /** POSTs a text as `text/plain`; settles within about `timeoutMs`, never rejects. */
  send(url: string, body: string, timeoutMs: number): Sending;
  /**
   * POSTs a text in a way that outlives the page. Returns undefined if that is not possible, for example because too much
   * is already under way. `answer` never settles where the answer cannot be seen.
   */
  sendAtExit?(url: string, body: string): Promise<TransportAnswer> | undefined;
};

export type Sending = {
  readonly answer: Promise<TransportAnswer>;
  /** Whether the request goes on when the page ends. */
  readonly outlivesPage: boolean;
};

export type Clock = {
  /** Milliseconds since 1970; may be wrong, and may jump. */
  now(): number;
  /** Calls back once, after `ms` at the earliest; the result cancels it. */
  setTimer(ms: number, callback: () => void): () => void;
};

export type Lifecycle = {
  /**
   * Calls back once recording may begin: at once, when the storage has been loaded, or when a prerendered page is shown.
   * Earlier calls wait in memory.
   */
  whenReady(callback: () => void): void;
  /** Calls back each time the page or app is hidden and may end without further notice. */
  onHide(listener: () => void): void;
  /** Calls back each time it is worth trying again: network back, page or app shown again. */
  onResume(listener: () => void): void;
};

/** Random bytes from a cryptographic source. */
export type RandomBytes = (count: number) => Uint8Array;

/** Ensures that only one tab sends at a time. */
export type SendingTurn = {
  /** Runs the work once no other tab runs work of this name; settles after it. Never rejects. */
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
  /** When the present call was really made, if it waited before it reached the library. */
  readonly calledAtMs?: () => number | undefined;
  readonly lifecycle: Lifecycle;
  readonly randomBytes: RandomBytes;
  /** Default: only this client sends from this storage. */
  readonly turn?: SendingTurn;
  /** Shows the developer one line; the core puts `Sluice: ` before it. */
  readonly warn: (line: string) => void;
};
