// The client library's operations, the same for all surfaces: a table of contents.

import type { Adapters } from './adapters.js';
import type { CollectAnswer, Properties } from './messages.js';

export type Settings = {
  /** Origin, perhaps with a path, of the Sluice to send to, such as `https://events.example.com`. */
  readonly baseUrl: string;
  /** Messages wait at most this long for others to go with. */
  readonly intervalMs: number;
  /** A session ends after this long without a call. */
  readonly sessionIdleMs: number;
  /** Whether each start begins a session, even when the last one is not idle. */
  readonly sessionPerStart: boolean;
  /** Record nothing until `optIn` is called, unless the user chose before. */
  readonly optedOut?: boolean;
  /** Identities that are taken although they look like a word that many users would share. */
  readonly allowIdentities?: readonly string[];
  /** Sees each answer to a batch of the app, after it was dealt with. */
  readonly onAnswer?: (appId: string, answer: CollectAnswer) => void;
};

export type Client = {
  /**
   * Begins to record for an app; called again, a session of that app begins (`sessionPerStart`), or recording
   * goes on for another app. What waits for former apps is still sent to them, where they were last started.
   * Calls of other operations before the first start wait for it.
   */
  start(appId: string, settings: Settings): void;
  track(event: string, properties?: Properties | null): void;
  /** Records what the library itself saw; properties over a length are cut, reserved keys are allowed. */
  autocapture(event: string, properties: Properties): void;
  identify(identity: string): void;
  resetIdentity(): void;
  addUserProperties(properties: Properties): void;
  addEventProperties(properties: Properties): void;
  removeEventProperty(property: string): void;
  clearEventProperties(): void;
  /** The current user's id; undefined before the start, and while opted out if there never was a user. */
  readonly userId: string | undefined;
  readonly identity: string | undefined;
  /** Stops recording, forgets what waits to be sent, and remembers the choice. */
  optOut(): void;
  optIn(): void;
  /** Sends what waits now, as far as the server lets; settles when that was tried. Never rejects. */
  flush(): Promise<void>;
  /** Takes effect at the next send. */
  changeInterval(intervalMs: number): void;
  /** While given, each batch carries it, and batches go out every second. */
  setPairing(pairing: string | undefined): void;
  /** Messages that were given up since the start of the page: pushed out, too large or refused. */
  readonly droppedCount: number;
  /** Shows a line to the developer; never throws. */
  warn(line: string): void;
};

/** Makes a client. It does nothing until it is started. No operation throws, whatever its arguments. */
export declare function createClient(adapters: Adapters): Client;
