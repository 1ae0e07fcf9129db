// The Android surface, imported as `sluice-client/android`.

import type { Properties } from './core/messages.js';
import type { Operations } from './core/operations.js';
import type { DeviceAdapters, PairingAdapters } from './mobile/adapters.js';
import {
  type AndroidEventProperties,
  toPlainProperties,
  toText,
  toTextProperties,
} from './mobile/android-properties.js';
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
export type { AndroidEventProperties, AndroidValue } from './mobile/android-properties.js';

export type AndroidOptions = MobileOptions;

/** Takes the place of Android's Context: the adapters of the phone. */
export type AndroidContext = DeviceAdapters & PairingAdapters;

/** Properties of a user on Android. */
export type AndroidUserProperties = Properties | ReadonlyMap<string | number, string | number>;

export type AndroidSluice = Omit<
  Operations,
  'track' | 'addUserProperties' | 'addEventProperties' | 'removeEventProperty'
> & {
  /** To be called before everything else, with the address of the service. */
  configure(options: AndroidOptions): void;
  /** Begins to record for an app. To be called once when the app opens; every further call begins a new session. */
  init(context: AndroidContext, appId: string): void;
  /** Records an event; the name has 1 to 255 characters. Keys and values are sent as text. */
  track(event: string, properties?: AndroidEventProperties | null): void;
  /** Adds to the current user's properties; values have at most 255 characters. */
  addUserProperties(properties: AndroidUserProperties): void;
  /** Attaches properties to all later events of this device. Keys and values are sent as text. */
  addEventProperties(properties: AndroidEventProperties | null): void;
  /** Stops attaching a property. `property`: the key given to `addEventProperties`, or its text. */
  removeEventProperty(property: string | number | boolean | bigint): void;
  /** Starts pairing with the Event Visualizer: shows the code that an administrator enters there. */
  startEVPairing(): void;
  stopEVPairing(): void;
  /** Switches off the shake that starts pairing; for apps in production. */
  disableVisualizerPairingGesture(): void;
  /** @deprecated Use `disableVisualizerPairingGesture`, which does the same. */
  disableDefaultPairingGesture(): void;
};

/** Makes a separate surface. An app needs only one, `sluice`. */
export function createAndroidSluice(): AndroidSluice {
  const mobile = createMobile();
  const { run } = mobile;
  let warnedOfName = false;
  return {
    ...operationsOf(mobile),
    configure: mobile.configure,
    init(context, appId) {
      mobile.attach(context);
      mobile.start('init', appId);
    },
    track: (event, properties) =>
      run('track', (client) => client.track(event, toTextProperties(properties, client.warn))),
    addUserProperties: (properties) =>
      run('addUserProperties', (client) =>
        client.addUserProperties(toPlainProperties(properties, client.warn)),
      ),
    addEventProperties: (properties) =>
      run('addEventProperties', (client) =>
        client.addEventProperties(toTextProperties(properties, client.warn)),
      ),
    removeEventProperty: (property) =>
      run('removeEventProperty', (client) => client.removeEventProperty(toText(property) as string)),
    startEVPairing: mobile.startPairing,
    stopEVPairing: mobile.stopPairing,
    disableVisualizerPairingGesture: mobile.disableGesture,
    disableDefaultPairingGesture() {
      if (!warnedOfName) {
        mobile.warn('disableDefaultPairingGesture is deprecated: use disableVisualizerPairingGesture.');
      }
      warnedOfName = true;
      mobile.disableGesture();
    },
  };
}

export const sluice: AndroidSluice = createAndroidSluice();
