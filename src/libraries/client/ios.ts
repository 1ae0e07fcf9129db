// The iOS surface, imported as `sluice-client/ios`.

import type { Operations } from './core/operations.js';
import type { DeviceAdapters, PairingAdapters } from './mobile/adapters.js';
import { createMobile } from './mobile/mobile.js';
import { operationsOf } from './mobile/operations.js';
import type { MobileOptions } from './mobile/options.js';

export type { Properties } from './core/messages.js';
export type {
  AppState,
  DeviceAdapters,
  DeviceStorage,
  Fetch,
  PairingAdapters,
  RuntimeAdapters,
} from './mobile/adapters.js';

export type IosOptions = MobileOptions & DeviceAdapters & PairingAdapters;

export type IosSluice = Operations & {
  /** To be called before everything else, with the address of the service and the phone's adapters. */
  configure(options: IosOptions): void;
  /** Begins to record for an app. To be called once when the app opens; every further call begins a new session. */
  setAppId(appId: string): void;
  /** The current user's id; `''` until the storage has been loaded after `setAppId`. */
  readonly userId: string;
  /** Sets how often events are sent, in seconds from 0.05 to a day, from the next send on. Default: 15. */
  changeInterval(seconds: number): void;
  /** Starts pairing with the Event Visualizer: shows the code that an administrator enters there. */
  startEVPairing(): void;
  stopEVPairing(): void;
  /** Switches off the shake that starts pairing; for apps in production. */
  disableVisualizerPairingGesture(): void;
};

/** Makes a separate surface. An app needs only one, `sluice`. */
export function createIosSluice(): IosSluice {
  const mobile = createMobile();
  return {
    configure(options) {
      mobile.configure(options);
      mobile.attach(options);
    },
    setAppId: (appId) => mobile.start('setAppId', appId),
    ...operationsOf(mobile),
    get userId() {
      return mobile.userId ?? '';
    },
    changeInterval: mobile.changeInterval,
    startEVPairing: mobile.startPairing,
    stopEVPairing: mobile.stopPairing,
    disableVisualizerPairingGesture: mobile.disableGesture,
  };
}

export const sluice: IosSluice = createIosSluice();
