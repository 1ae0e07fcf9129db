// The iOS surface, imported as `sluice-client/ios`.

import type { DeviceAdapters, PairingAdapters } from './mobile/adapters.js';
import { createMobile } from './mobile/mobile.js';
import { type Operations, operationsOf } from './mobile/operations.js';
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
  /** To be called before all else, with the address to send to and the phone's adapters. */
  configure(options: IosOptions): void;
  /** Begins to record for an app. To be called once when the app opens; each further call begins a session. */
  setAppId(appId: string): void;
  /** The current user's id; `''` until the storage has been loaded after `setAppId`. */
  readonly userId: string;
  /** How often events are sent, in seconds from 0.05 to a day; the next send goes by it. Default: 15. */
  changeInterval(seconds: number): void;
  /** Starts pairing with the Event Visualizer: shows the code that an administrator enters there. */
  startEVPairing(): void;
  stopEVPairing(): void;
  /** Switches the shake off that starts pairing; for apps in production. */
  disableVisualizerPairingGesture(): void;
};

/** Makes a surface of its own; an app has use for one only, `sluice`. */
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
