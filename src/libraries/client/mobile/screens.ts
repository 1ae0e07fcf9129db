// Automatic screen views: each screen that the phone reports becomes an event.

import type { Client } from '../core/client.js';
import type { DeviceAdapters } from './adapters.js';
import { attempt } from './attempt.js';

/** Listens for screens. To be called once; `isOn` is called for each screen. */
export function listenToScreens(
  device: DeviceAdapters,
  client: Pick<Client, 'autocapture' | 'warn'>,
  isOn: () => boolean,
): void {
  function view(screenName: unknown): void {
    if (!isOn()) return;
    if (typeof screenName === 'string' && screenName !== '') {
      client.autocapture('Screen View', { screen_name: screenName });
    } else {
      client.warn('a screen view is dropped: the screen has no name.');
    }
  }

  attempt(client.warn, 'onScreen', () => device.onScreen?.(view));
}
