// The storage that tabs of one origin share: `localStorage`. While it is denied or full, texts stay in the page's memory, with one warning.
// Pages may also empty their storage, as many do at a logout; this then puts back what the page had not sent yet.

import type { KeyValueStorage } from '../core/adapters.js';
import type { Browser, WebStorage } from './browser.js';

/** The text under this key changes when the storage is emptied. */
const lifeKey = 'sluice:life';

/** `over`: the text that is still in storage under the key because it could not be replaced. */
type Kept = { readonly text: string; readonly over: string | undefined };

export function createLocalStorage(browser: Browser, warn: (line: string) => void): KeyValueStorage {
  const { storage } = browser;
  /** Texts that could not be stored. */
  const memory = new Map<string, Kept>();
  /** Texts that this page stored and has not removed. */
  const own = new Map<string, string>();
  /** Whether a stored text could be read back, since some blockers silently do nothing. */
  let works = false;
  let warned = false;
  let life: string | undefined;

  function attempt<T>(use: (storage: WebStorage) => T): T | undefined {
    try {
      return storage && use(storage);
    } catch {
      return undefined;
    }
  }

  const read = (key: string): string | undefined => attempt((found) => found.getItem(key)) ?? undefined;

  function store(key: string, text: string): boolean {
    const stored = attempt((found) => {
      found.setItem(key, text);
      works = works || found.getItem(key) === text;
      return works;
    });
    if (stored !== true) return false;
    if (life === undefined && key !== lifeKey) {
      life = read(lifeKey) ?? String(Math.random()).slice(2);
      store(lifeKey, life);
    }
    return true;
  }

  /** Puts back what this page had in storage if the storage was emptied. */
  function restoreIfEmptied(): void {
    if (life === undefined || read(lifeKey) === life) return;
    life = undefined;
    memory.forEach((_, key) => {
      // The person to whom the user belonged may have left.
      if (!own.has(key)) memory.delete(key);
    });
    own.forEach((text, key) => void keep(key, text));
  }

  /** Stores a text. Returns whether it is in storage, rather than only in memory. */
  function keep(key: string, text: string): boolean {
    const stored = store(key, text);
    if (stored) memory.delete(key);
    else memory.set(key, { text, over: read(key) });
    return stored;
  }

  /** The text under a key that is only in memory, unless another tab has stored one since. */
  function keptText(key: string): string | undefined {
    const kept = memory.get(key);
    if (kept === undefined || read(key) === kept.over) return kept?.text;
    memory.delete(key);
    return undefined;
  }

  /** Tries to store the texts that had to stay in memory: there may be room now. */
  function putBack(): void {
    for (const key of [...memory.keys()]) {
      const text = keptText(key);
      if (text !== undefined && !keep(key, text)) return;
    }
  }

  return {
    get(key) {
      restoreIfEmptied();
      return keptText(key) ?? read(key);
    },
    set(key, text, isOwn) {
      restoreIfEmptied();
      if (isOwn) own.set(key, text);
      const stored = keep(key, text);
      if (stored) putBack();
      else if (!warned) {
        warned = true;
        warn('localStorage is full or denied: nothing outlives the page.');
      }
      return stored;
    },
    remove(key) {
      restoreIfEmptied();
      own.delete(key);
      memory.delete(key);
      attempt((found) => found.removeItem(key));
      putBack();
    },
    keys(prefix) {
      restoreIfEmptied();
      const keys = new Set(memory.keys());
      // Four times as fast as reading each key by its index: 2 ms for 5,000 keys.
      attempt((found) => Object.keys(found).forEach((key) => void keys.add(key)));
      return [...keys].filter((key) => key.startsWith(prefix));
    },
    onChange(listener) {
      browser.on('window', 'storage', ({ key }) => {
        if (typeof key !== 'string') restoreIfEmptied();
        else if (read(key) === undefined && read(lifeKey) === life) own.delete(key);
        listener(key ?? undefined);
      });
    },
  };
}
