// The global event properties in the device's storage, where there are no cookies.

import type { KeyValueStorage, TextStore } from './adapters.js';
import { keysOf } from './keys.js';

export function createStoredProperties(storage: KeyValueStorage): TextStore {
  return {
    read: (appId) => storage.get(keysOf(appId).properties),
    write(appId, text) {
      const key = keysOf(appId).properties;
      if (text === '') storage.remove(key);
      else storage.set(key, text);
      return true;
    },
  };
}
