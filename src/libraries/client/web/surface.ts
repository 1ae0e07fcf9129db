// What the library offers to a page: its operations and their options.

import type { BeforeSend } from '../core/before-send.js';
import type { PropertiesInput, PropertyInput } from '../core/messages.js';
import type { PageViewOptions } from './page-views.js';

/**
 * Properties of events and users: numbers, strings of fewer than 1024 characters (of users at most 255), booleans and lists of
 * these, which are joined with `||`. Null and undefined are left out.
 */
export type SluiceProperties = { readonly [key: string]: PropertyInput };

export type LoadOptions = {
  /** The address of the Sluice in the data centre to send to, such as `https://events.example.com`. */
  readonly baseUrl: string;
  /** The path at which that Sluice accepts messages, one of its `COLLECT_PATH`; default: `/api/collect`. */
  readonly collectPath?: string;
  /** Whether page views are recorded, by default with addresses without query and fragment; default: true. */
  readonly pageViews?: boolean | PageViewOptions;
  /** Record and store nothing until `optIn()`, unless the visitor has already chosen; default: false. */
  readonly optedOut?: boolean;
  /** Treat a visitor whose browser sends Global Privacy Control as with `optedOut`; default: false. */
  readonly globalPrivacyControl?: boolean;
  /** Identities to accept although many users might share them, such as `user`. */
  readonly allowIdentities?: readonly string[];
  /**
   * Called before anything is recorded. Returns what to record instead, or null for nothing. If it throws, or returns undefined, nothing is
   * recorded. Calls that it makes itself are dropped.
   */
  readonly beforeSend?: BeforeSend;
  /** A session ends after this many minutes without a call, from 1 to 1440; default 30. */
  readonly sessionIdleMinutes?: number;
  /** How many milliseconds messages wait for others to be sent with, from 50 to a day; default: 3000. */
  readonly intervalMs?: number;
};

export type Operations = {
  /**
   * Begins to record for the environment with this app_id. Earlier calls wait for it. A further call replaces the options. If the page has
   * several copies of the library, the first one serves all, and `load` on the others is ignored.
   */
  load(appId: string, options: LoadOptions): void;
  /** Records an event; its name has at most 255 characters. */
  track<T extends PropertiesInput<T>>(event: string, properties?: T): void;
  /** Gives the user an identity: case-sensitive, fewer than 255 characters, unique to the user. */
  identify(identity: string): void;
  /** Begins a new anonymous user and session, for example at logout. Does nothing if the user is already anonymous. */
  resetIdentity(): void;
  /** Attaches properties to the user, for all past and future activity. */
  addUserProperties<T extends PropertiesInput<T>>(properties: T): void;
  /** Attaches properties to all events from now on, across pages and sessions. */
  addEventProperties<T extends PropertiesInput<T>>(properties: T): void;
  removeEventProperty(property: string): void;
  clearEventProperties(): void;
  /** Stops recording, forgets the user and what waits to be sent, and remembers only the choice. */
  optOut(): void;
  optIn(): void;
};

/** None of these throws, regardless of its arguments. A warning in the console says what was not accepted. */
export type Sluice = Operations & {
  /** Sends what is waiting, and settles once that was tried. Never rejects. */
  flush(): Promise<void>;
  /** The user's id, for the server-side API; undefined before the library has begun to record. */
  readonly userId: string | undefined;
  /** The user's identity; undefined for an anonymous user. */
  readonly identity: string | undefined;
  /** How many messages this page had to drop, because too many were waiting or the server refused them. */
  readonly droppedCount: number;
};
