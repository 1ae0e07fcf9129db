// An app's texts in cookies of at most 4,096 bytes: the global event properties, and the visitor's choice. If cookies are denied, the texts
// are in the page's memory.

import type { TextStore } from '../core/adapters.js';
import { clientLimits } from '../core/limits.js';
import type { Browser } from './browser.js';

/** Browsers limit the life of a cookie to 400 days. Each page that reads the cookie renews it. */
const lifeSeconds = 400 * 24 * 60 * 60;

/** Makes a store of cookies named `sluice_APP_ID` and a suffix. Calls `onDenied` once if cookies are denied. */
export function createCookieStore(browser: Browser, suffix: string, onDenied: () => void): TextStore {
  const memory = new Map<string, string>();
  const renewed = new Set<string>();
  /** The browser asks another process for cookies, so they are read once for all calls that a page makes in a row. */
  let all: string | undefined;
  let denied = false;

  function read(appId: string): string | undefined {
    const kept = memory.get(appId);
    // If a cookie still exists, it is an older one.
    if (kept !== undefined) return kept;
    const cookie = find(appId);
    if (cookie === undefined) return undefined;
    if (!renewed.has(appId)) put(cookie, lifeSeconds);
    renewed.add(appId);
    return cookie.slice(cookie.indexOf('=') + 1);
  }

  /** The name and text of the app's cookie. */
  function find(appId: string): string | undefined {
    if (all === undefined) {
      all = browser.readText('cookie');
      void Promise.resolve().then(forget);
    }
    const begin = `${nameOf(appId)}=`;
    return all.split(/;\s*/).filter((cookie) => cookie.startsWith(begin))[0];
  }

  function forget(): void {
    all = undefined;
  }

  function put(pair: string, seconds: number): void {
    const secure = browser.location?.protocol === 'https:' ? ';secure' : '';
    browser.setCookie(`${pair};path=/;max-age=${seconds};samesite=lax${secure}`);
    forget();
  }

  function nameOf(appId: string): string {
    // Parentheses are the only characters that encodeURIComponent leaves unescaped and that cookie names do not allow.
    return `sluice_${encodeURIComponent(appId).replace(/[()]/g, '_')}${suffix}`;
  }

  return {
    read,
    write(appId, text) {
      const pair = `${nameOf(appId)}=${text}`;
      // Name and text are ASCII, since everything else was escaped.
      if (pair.length > clientLimits.cookieBytesMax) return false;
      memory.delete(appId);
      forget();
      const former = find(appId);
      renewed.add(appId);
      put(pair, text === '' ? 0 : lifeSeconds);
      const now = find(appId);
      // A different text was written by another tab after ours.
      if (text === '' || now === pair || now !== former) return true;
      memory.set(appId, text);
      if (!denied) onDenied();
      denied = true;
      return true;
    },
  };
}
