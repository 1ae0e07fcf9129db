// The global event properties of an app in one cookie of at most 4,096 bytes; where cookies are denied, in the
// page's memory, with one warning.

import type { PropertyStore } from '../core/adapters.js';
import { clientLimits } from '../core/limits.js';
import type { Browser } from './browser.js';

/** Browsers cap the life of a cookie at 400 days; it begins anew with each page that reads it. */
const lifeSeconds = 400 * 24 * 60 * 60;

export function createCookieStore(browser: Browser, warn: (line: string) => void): PropertyStore {
  const memory = new Map<string, string>();
  const renewed = new Set<string>();
  let warned = false;

  function read(appId: string): string | undefined {
    const kept = memory.get(appId);
    // The cookie that is there still is an older one.
    if (kept !== undefined) return kept;
    const name = nameOf(appId);
    for (const cookie of allCookies().split(/;\s*/)) {
      if (cookie.lastIndexOf(`${name}=`, 0) !== 0) continue;
      if (!renewed.has(appId)) put(cookie, lifeSeconds);
      renewed.add(appId);
      return cookie.slice(name.length + 1);
    }
    return undefined;
  }

  function allCookies(): string {
    try {
      return browser.document?.cookie ?? '';
    } catch {
      return '';
    }
  }

  function put(pair: string, seconds: number): void {
    const secure = browser.location?.protocol === 'https:' ? ';secure' : '';
    try {
      if (browser.document)
        browser.document.cookie = `${pair};path=/;max-age=${seconds};samesite=lax${secure}`;
    } catch {
      // Denied: what was put is not there when it is read back.
    }
  }

  return {
    read,
    write(appId, text) {
      const pair = `${nameOf(appId)}=${text}`;
      // Name and text are ASCII: what is not was escaped.
      if (pair.length > clientLimits.cookieBytesMax) return false;
      memory.delete(appId);
      renewed.add(appId);
      put(pair, text === '' ? 0 : lifeSeconds);
      if (text === '' || read(appId) === text) return true;
      memory.set(appId, text);
      if (!warned) warn('cookies are denied: global event properties do not outlive this page.');
      warned = true;
      return true;
    },
  };
}

function nameOf(appId: string): string {
  // Parentheses are the only characters that this escaping leaves and cookie names do not take.
  return `sluice_${encodeURIComponent(appId).replace(/[()]/g, '_')}`;
}
