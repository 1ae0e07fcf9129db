// What tabs of one origin share, in `localStorage`; where it is denied or full, in the page's memory, with one
// warning, until there is room. A page may also empty its storage, as many do at a logout: then this page puts back
// what it had not sent yet.

import type { KeyValueStorage } from '../core/adapters.js';
import type { Browser, WebStorage } from './browser.js';

/** Its text changes when the storage has been emptied. */
const lifeKey = 'sluice:life';

/**
 * Other tabs' changes are heard of, except by a page that the browser has kept aside. What it is not told of, such as a
 * page that removes keys itself, it sees after so long: for 5,000 keys a list takes milliseconds.
 */
const listMs = 60_000;

/** `over`: what is in storage under the same key, which could not be replaced. */
type Kept = { readonly text: string; readonly over: string | undefined };

export function createLocalStorage(browser: Browser, warn: (line: string) => void): KeyValueStorage {
  const { storage } = browser;
  /** What could not be stored. */
  const memory = new Map<string, Kept>();
  /** What this page put in and nobody has taken out. */
  const own = new Map<string, string>();
  /** Whether a text was found again after it was stored: some blockers let nothing happen. */
  let works = false;
  let warned = false;
  let life: string | undefined;
  /** The keys in storage and in memory, by their beginnings up to the last colon, and when they were listed. */
  let listed: Map<string, Set<string>> | undefined;
  let listedMs = 0;

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

  /** Puts back what this page had in storage, if that was emptied since. */
  function look(): void {
    if (life === undefined || read(lifeKey) === life) return;
    life = undefined;
    listed = undefined;
    memory.forEach((_, key) => {
      // Whose user it was may have left.
      if (!own.has(key)) memory.delete(key);
    });
    own.forEach((text, key) => void keep(key, text));
  }

  /** Whether it is in storage. */
  function keep(key: string, text: string): boolean {
    const stored = store(key, text);
    note(key);
    if (stored) memory.delete(key);
    else memory.set(key, { text, over: read(key) });
    return stored;
  }

  /** What stayed in memory, unless another tab has stored a text since. */
  function keptText(key: string): string | undefined {
    const kept = memory.get(key);
    if (kept === undefined || read(key) === kept.over) return kept?.text;
    memory.delete(key);
    return undefined;
  }

  /** Stores what had to stay in memory, now that there may be room. */
  function putBack(): void {
    for (const key of [...memory.keys()]) {
      const text = keptText(key);
      if (text !== undefined && !keep(key, text)) return;
    }
  }

  function list(): Map<string, Set<string>> {
    const ms = browser.now();
    if (listed === undefined || Math.abs(ms - listedMs) > listMs) {
      listed = new Map();
      listedMs = ms;
      // Four times as fast as asking for each key by its index: 2 ms for 5,000 of them.
      attempt((found) => Object.keys(found).forEach(note));
      memory.forEach((_, key) => void note(key));
    }
    return listed;
  }

  function note(key: string): void {
    const name = groupOf(key);
    const group = listed?.get(name);
    if (group) group.add(key);
    else listed?.set(name, new Set([key]));
  }

  function unlist(key: string): void {
    listed?.get(groupOf(key))?.delete(key);
  }

  return {
    get(key) {
      look();
      return keptText(key) ?? read(key);
    },
    set(key, text, isOwn) {
      look();
      if (isOwn) own.set(key, text);
      const stored = keep(key, text);
      if (stored) putBack();
      else if (!warned) {
        warned = true;
        warn('localStorage is full or denied: what is recorded here does not outlive this page.');
      }
      return stored;
    },
    remove(key) {
      look();
      own.delete(key);
      memory.delete(key);
      unlist(key);
      attempt((found) => found.removeItem(key));
      putBack();
    },
    keys(prefix) {
      look();
      const found: string[] = [];
      list().forEach((group, name) => {
        // One by one: as arguments of one call, hundreds of thousands exhaust the stack.
        if (name.startsWith(prefix)) for (const key of group) found.push(key);
      });
      return found;
    },
    onChange(listener) {
      browser.on('window', 'storage', ({ key }) => {
        if (typeof key === 'string') {
          const isThere = read(key) !== undefined;
          if (isThere) note(key);
          else {
            unlist(key);
            if (read(lifeKey) === life) own.delete(key);
          }
        } else look();
        listener(key ?? undefined);
      });
      browser.on('window', 'pageshow', ({ persisted }) => {
        if (persisted) listed = undefined;
      });
    },
  };
}

/** Keys are asked for by beginnings that end with a colon. */
function groupOf(key: string): string {
  return key.slice(0, key.lastIndexOf(':') + 1);
}
