// What the mobile surfaces need from the phone. What React Native and its usual packages offer can be passed as it is; a native app wraps
// its own. A function that adds a listener may return a way to remove it. If an adapter throws, the developer gets a warning, and the app
// continues.

import type { Clock, RandomBytes } from '../core/adapters.js';

/** Text that outlives the app. AsyncStorage fits; so does anything that answers at once. */
export type DeviceStorage = {
  getItem(key: string): Eventually<string | null | undefined>;
  setItem(key: string, text: string): Eventually<unknown>;
  removeItem(key: string): Eventually<unknown>;
  getAllKeys(): Eventually<readonly string[]>;
  /** Reads many keys at once, in any order, as AsyncStorage does up to version 2. Without it, keys are read one by one. */
  multiGet?(keys: readonly string[]): Eventually<readonly (readonly [key: string, text: string | null])[]>;
};

type Eventually<T> = T | PromiseLike<T>;

/** Whether the app is in the foreground. React Native's `AppState` fits. */
export type AppState = {
  /** The listener gets `'active'` when the app comes to the foreground, and `'background'` when it leaves. */
  addEventListener(type: 'change', listener: (state: string) => void): unknown;
};

/** The part of `fetch` that the library uses. */
export type Fetch = (
  url: string,
  init: {
    readonly method: 'POST';
    readonly headers: Readonly<Record<string, string>>;
    readonly body: string;
    /** An AbortSignal, if the platform has them. Typed as `never`, so that every platform's `fetch` fits. */
    readonly signal?: never;
  },
) => PromiseLike<{
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): PromiseLike<string>;
}>;

/** What every surface can be given. */
export type DeviceAdapters = {
  /** Without it, the user, the queue and the properties last only as long as the app runs. */
  readonly storage?: DeviceStorage | null;
  /** Without it, nothing is sent early when the app leaves the foreground. */
  readonly appState?: AppState;
  /** Default: the global `fetch`. */
  readonly fetch?: Fetch;
  /** Adds a listener for the names of the screens that are shown. Each becomes an event `Screen View`. */
  readonly onScreen?: (listener: (screenName: string) => void) => unknown;
  /** Adds a listener that is called when the network is back, so that waiting messages are sent at once. */
  readonly onOnline?: (listener: () => void) => unknown;
};

/** What a surface that pairs with the Event Visualizer can also be given. */
export type PairingAdapters = {
  /** Shows the short code that an administrator enters on the visualizer's page. */
  readonly showPairingCode?: (code: string) => void;
  readonly hidePairingCode?: () => void;
  /** Adds a listener that is called when the device is shaken: the default pairing gesture. */
  readonly onShake?: (listener: () => void) => unknown;
};

/** What depends on the JavaScript runtime rather than on the phone; tests pass their own. */
export type RuntimeAdapters = {
  /** Default: the system's clock and timers. */
  readonly clock?: Clock;
  /** Default: `crypto.getRandomValues`. Must be cryptographic, so that no two devices get the same user. */
  readonly randomBytes?: RandomBytes;
  /** Shows one line to the developer. Default: `console.warn`. */
  readonly warn?: (line: string) => void;
};
