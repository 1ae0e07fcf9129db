// Batches over `fetch`; when the page may end, as requests that outlive it: `keepalive`, or `sendBeacon` where
// there is none. Text bodies without further headers need no preflight.

import type { Transport, TransportAnswer } from '../core/adapters.js';
import { clientLimits } from '../core/limits.js';
import { utf8Bytes } from '../core/text.js';
import type { Browser, FetchResponse } from './browser.js';

const noAnswer: TransportAnswer = { status: 0, body: '' };

async function readResponse(response: FetchResponse): Promise<TransportAnswer> {
  const retryAfter = response.headers.get('Retry-After');
  const answer = { status: response.status, body: await response.text() };
  return retryAfter === null ? answer : { ...answer, retryAfter };
}

export function createTransport(browser: Browser): Transport {
  const hasKeepalive = browser.Request !== undefined && 'keepalive' in browser.Request.prototype;
  /** Bytes under way that outlive the page; browsers allow 64 KiB at a time. */
  let keptBytes = 0;

  async function post(
    url: string,
    body: string,
    timeoutMs: number,
    keepalive: boolean,
  ): Promise<TransportAnswer> {
    const abort = browser.AbortController === undefined ? undefined : new browser.AbortController();
    const bytes = keepalive ? utf8Bytes(body) : 0;
    let timer: unknown;
    keptBytes += bytes;
    try {
      if (browser.fetch === undefined) return noAnswer;
      const request = browser.fetch(url, {
        method: 'POST',
        body,
        keepalive,
        credentials: 'omit',
        signal: abort?.signal,
      });
      const timedOut = new Promise<TransportAnswer>((resolve) => {
        timer = browser.setTimeout(() => {
          resolve(noAnswer);
          abort?.abort();
        }, timeoutMs);
      });
      return await Promise.race([request.then(readResponse), timedOut]);
    } catch {
      // No network, blocked, or aborted: the library sends it again.
      return noAnswer;
    } finally {
      browser.clearTimeout(timer);
      keptBytes -= bytes;
    }
  }

  function fits(body: string): boolean {
    return hasKeepalive && keptBytes + utf8Bytes(body) <= clientLimits.exitBytesMax;
  }

  return {
    send(url, body, timeoutMs) {
      // A small batch outlives the page at once, and need not be sent again when it ends.
      const outlivesPage = fits(body);
      return { answer: post(url, body, timeoutMs, outlivesPage), outlivesPage };
    },
    sendAtExit(url, body) {
      if (fits(body)) return post(url, body, clientLimits.requestMsMax, true);
      try {
        if (browser.navigator?.sendBeacon?.(url, body)) return new Promise(() => {});
      } catch {
        // Refused like one that is too large.
      }
      return undefined;
    },
  };
}
