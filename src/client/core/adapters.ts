// What the core needs of the place it runs in. Each surface builds these once and hands them to `createClient`;
// the core itself touches no browser, no phone and no clock. None of these functions may throw.

/**
 * Text that outlives the page or the app. Read and written at once: where the device's own storage answers
 * later (React Native), everything is loaded before `whenReady` calls back, and writes follow behind.
 * Several tabs may share one; no value is read, changed and written back where two of them could do so at once.
 */
export type KeyValueStorage = {
  get(key: string): string | undefined;
  /**
   * Keeps the text under the key, in memory when it cannot be kept for longer: then false, and what was kept before
   * may be there again after a restart. `own`: when somebody empties the storage, this page puts it back.
   */
  set(key: string, text: string, own?: true): boolean;
  remove(key: string): void;
  /** The keys that begin with the prefix, in any order. */
  keys(prefix: string): string[];
  /** Calls back after another tab has changed a key, or all (undefined); absent where nobody else can. */
  onChange?(listener: (key: string | undefined) => void): void;
  /** Calls back once it is known what is kept under the key; absent where all is known from the start. */
  whenKnown?(key: string, callback: () => void): void;
};

/** One text an app, which may be refused for its size: the global event properties, the visitor's choice. */
export type TextStore = {
  read(appId: string): string | undefined;
  /** Keeps the text; false when it does not fit, and then the former one stays. */
  write(appId: string, text: string): boolean;
};

export type TransportAnswer = {
  /** HTTP status; 0 when no answer came (no network, blocked, timed out). */
  readonly status: number;
  readonly body: string;
  /** The header `Retry-After` as it came, if it did. */
  readonly retryAfter?: string | undefined;
  /** No answer came in time. */
  readonly timedOut?: true;
};

export type Transport = {
  /** POSTs a text as `text/plain`; settles within about `timeoutMs`, never rejects. */
  send(url: string, body: string, timeoutMs: number): Sending;
  /**
   * POSTs a text in a way that outlives the page. Undefined when that is not possible, for example because
   * too much is under way already. `answer` never settles where an answer cannot be seen.
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
   * Calls back once recording may begin: at once, or when the storage has been loaded, or when a prerendered
   * page is shown. Calls made before wait in memory.
   */
  whenReady(callback: () => void): void;
  /** Calls back each time the page or app is hidden and may end without another word. */
  onHide(listener: () => void): void;
  /** Calls back each time it is worth trying again: network back, page or app shown again. */
  onResume(listener: () => void): void;
};

/** Random bytes from a cryptographic source. */
export type RandomBytes = (count: number) => Uint8Array;

/** Sees to it that one tab at a time sends. */
export type SendingTurn = {
  /** Runs the work when nobody else runs work of this name; settles after it. Never rejects. */
  take(name: string, work: () => Promise<void>): Promise<void>;
};

export type Adapters = {
  readonly storage: KeyValueStorage;
  /** Of the global event properties. */
  readonly propertyStore: TextStore;
  /** Where the visitor's choice is kept besides `storage`, which the page may empty. */
  readonly consentStore?: TextStore;
  readonly transport: Transport;
  readonly clock: Clock;
  /** When the call that is being made was made, where that was earlier. */
  readonly calledAtMs?: () => number | undefined;
  readonly lifecycle: Lifecycle;
  readonly randomBytes: RandomBytes;
  /** Default: nobody else sends from this storage. */
  readonly turn?: SendingTurn;
  /** Shows the developer one line; the core puts `Sluice: ` before it. */
  readonly warn: (line: string) => void;
};
