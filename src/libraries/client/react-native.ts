// The React Native surface, imported as `sluice-client/react-native`.

import type { Operations } from './core/operations.js';
import type { DeviceAdapters } from './mobile/adapters.js';
import { createMobile } from './mobile/mobile.js';
import { operationsOf } from './mobile/operations.js';
import type { MobileOptions } from './mobile/options.js';

export type { Properties } from './core/messages.js';
export type { AppState, DeviceAdapters, DeviceStorage, Fetch, RuntimeAdapters } from './mobile/adapters.js';

export type ReactNativeOptions = MobileOptions & DeviceAdapters;

export type ReactNativeSluice = Operations & {
  /** To be called before everything else, with the address of the service and the phone's adapters. */
  configure(options: ReactNativeOptions): void;
  /** Begins to record for an app. To be called once when the app opens; every further call begins a new session. */
  setAppId(appId: string): void;
  /** The current user's id; undefined until the storage has been loaded after `setAppId`. */
  readonly userId: string | undefined;
  /** The current user's identity; undefined if the user is anonymous. */
  readonly identity: string | undefined;
};

/** Makes a separate surface. An app needs only one, `sluice`. */
export function createReactNativeSluice(): ReactNativeSluice {
  const mobile = createMobile();
  return {
    configure(options) {
      mobile.configure(options);
      mobile.attach(options);
    },
    setAppId: (appId) => mobile.start('setAppId', appId),
    ...operationsOf(mobile),
    get userId() {
      return mobile.userId;
    },
    get identity() {
      return mobile.identity;
    },
  };
}

export const sluice: ReactNativeSluice = createReactNativeSluice();
