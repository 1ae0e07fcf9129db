// What the library offers to a page: its operations and their options.

import type { BeforeSend } from '../core/before-send.js';
import type { PropertyInput } from '../core/messages.js';
import type { Operations } from '../core/operations.js';
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

export type WebOperations = Operations & {
  /**
   * Begins to record for the environment with this app_id. Earlier calls wait for it. A further call replaces the options. If the page has
   * several copies of the library, the first one serves all, and `load` on the others is ignored.
   */
  load(appId: string, options: LoadOptions): void;
};

/** None of these throws, regardless of its arguments. A warning in the console says what was not accepted. */
export type Sluice = WebOperations & {
  /** Sends what is waiting, and settles once that was tried. Never rejects. */
  flush(): Promise<void>;
  /** The user's id, for the server-side API; undefined before the library has begun to record. */
  readonly userId: string | undefined;
  /** The user's identity; undefined for an anonymous user. */
  readonly identity: string | undefined;
  /** How many messages this page had to drop, because too many were waiting or the server refused them. */
  readonly droppedCount: number;
};
