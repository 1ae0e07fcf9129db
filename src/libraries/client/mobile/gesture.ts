// The default pairing gesture, a shake, until the app switches it off.

import type { PairingAdapters } from './adapters.js';
import { attempt } from './attempt.js';

/** Makes the gesture. Calls `onGesture` each time. */
export function createGesture(onGesture: () => void) {
  let enabled = true;
  let unlisten = () => {};

  return {
    /** Listens to the device, unless the gesture was already switched off. To be called once. */
    listen(device: PairingAdapters, warn: (line: string) => void): void {
      if (!enabled) return;
      const listening = attempt(warn, 'onShake', () =>
        device.onShake?.(() => {
          if (enabled) onGesture();
        }),
      );
      unlisten = () => attempt(warn, 'onShake', () => remove(listening));
    },
    disable(): void {
      enabled = false;
      unlisten();
      unlisten = () => {};
    },
  };
}

/** Removes a listener with what adding it returned: a function, an object with `remove`, or nothing. */
function remove(listening: unknown): void {
  if (typeof listening === 'function') listening();
  else if (hasRemove(listening)) listening.remove();
}

function hasRemove(listening: unknown): listening is { remove(): void } {
  return typeof (listening as { remove?: unknown } | null | undefined)?.remove === 'function';
}
