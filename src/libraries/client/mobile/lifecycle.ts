// The core's lifecycle, based on the adapters of a phone: recording begins once the storage is loaded, the app counts as hidden when it
// leaves the foreground, and sending is tried again when the app or the network is back.

import type { Lifecycle } from '../core/adapters.js';
import type { DeviceAdapters } from './adapters.js';
import { attempt } from './attempt.js';

export type DeviceLifecycle = Lifecycle & {
  /** Listens to the device. To be called once. */
  listen(device: DeviceAdapters, warn: (line: string) => void): void;
  /** To be called once the storage has been loaded. */
  ready(): void;
};

/** Makes a lifecycle before the device is known. */
export function createDeviceLifecycle(): DeviceLifecycle {
  const hideListeners: (() => void)[] = [];
  const resumeListeners: (() => void)[] = [];
  let waiting: (() => void)[] | undefined = [];

  function resume(): void {
    for (const listener of resumeListeners) listener();
  }

  return {
    whenReady(callback) {
      if (waiting === undefined) callback();
      else waiting.push(callback);
    },
    onHide: (listener) => void hideListeners.push(listener),
    onResume: (listener) => void resumeListeners.push(listener),
    listen(device, warn) {
      attempt(warn, 'appState', () =>
        device.appState?.addEventListener('change', (state) => {
          if (state === 'active') resume();
          if (state === 'background') for (const listener of hideListeners) listener();
        }),
      );
      attempt(warn, 'onOnline', () => device.onOnline?.(resume));
    },
    ready() {
      const callbacks = waiting ?? [];
      waiting = undefined;
      for (const callback of callbacks) callback();
    },
  };
}
