// Sends batches by `fetch` and, when the page may be ending, by requests that outlive it: `keepalive`, or `sendBeacon` where that is
// missing. A text body without further headers needs no preflight.

import type { Transport, TransportAnswer } from '../core/adapters.js';
import { fetchAnswer } from '../core/fetching.js';
import { clientLimits, requestMs } from '../core/limits.js';
import { utf8Bytes } from '../core/text.js';
import type { Browser } from './browser.js';

export function createTransport(browser: Browser): Transport {
  /** Bytes under way in requests that outlive the page; browsers allow 64 KiB in total. */
  let keptBytes = 0;

  async function post(
    url: string,
    body: string,
    timeoutMs: number,
    keepalive: boolean,
  ): Promise<TransportAnswer> {
    const bytes = keepalive ? utf8Bytes(body) : 0;
    keptBytes += bytes;
    const ask = async (signal: unknown) => {
      const options = { method: 'POST', body, keepalive, credentials: 'omit', signal };
      // They inherit nothing: a property that a page has added to every object would count as an option.
      return browser.fetch?.(url, Object.assign(Object.create(null), options));
    };
    const answer = await fetchAnswer(ask, browser, timeoutMs, browser.newAbort());
    keptBytes -= bytes;
    return answer;
  }

  function fits(body: string): boolean {
    return browser.hasKeepalive && keptBytes + utf8Bytes(body) <= clientLimits.exitBytesMax;
  }

  return {
    send(url, body, timeoutMs) {
      // A small batch is sent in a way that outlives the page, so it need not be sent again if the page ends.
      const outlivesPage = fits(body);
      return { answer: post(url, body, timeoutMs, outlivesPage), outlivesPage };
    },
    sendAtExit(url, body) {
      if (fits(body)) return post(url, body, requestMs(utf8Bytes(body)), true);
      return browser.sendBeacon(url, body) ? new Promise(() => {}) : undefined;
    },
  };
}
