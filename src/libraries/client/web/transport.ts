// Sends batches by `fetch` and, when the page may be ending, by requests that outlive it: `keepalive`, or `sendBeacon` where that is
// missing. A text body without further headers needs no preflight.

import type { Transport, TransportAnswer } from '../core/adapters.js';
import { clientLimits, requestMs } from '../core/limits.js';
import { utf8Bytes } from '../core/text.js';
import type { Browser, FetchResponse } from './browser.js';

const noAnswer: TransportAnswer = { status: 0, body: '' };

async function readResponse(response: FetchResponse): Promise<TransportAnswer> {
  const retryAfter = response.headers.get('Retry-After') ?? undefined;
  return { status: response.status, body: await response.text(), retryAfter };
}

export function createTransport(browser: Browser): Transport {
  /** Bytes under way in requests that outlive the page; browsers allow 64 KiB in total. */
  let keptBytes = 0;

  async function post(
    url: string,
    body: string,
    timeoutMs: number,
    keepalive: boolean,
  ): Promise<TransportAnswer> {
    const abort = browser.newAbort();
    const bytes = keepalive ? utf8Bytes(body) : 0;
    let cancel: (() => void) | undefined;
    keptBytes += bytes;
    try {
      if (browser.fetch === undefined) return noAnswer;
      const timedOut = new Promise<TransportAnswer>((resolve) => {
        cancel = browser.setTimer(timeoutMs, () => {
          resolve(noAnswer);
          abort?.abort();
        });
      });
      // The options inherit nothing: a property that a page has added to every object would count as an option.
      const options = Object.assign(Object.create(null), {
        method: 'POST',
        body,
        keepalive,
        credentials: 'omit',
        signal: abort?.signal,
      });
      return await Promise.race([browser.fetch(url, options).then(readResponse), timedOut]);
    } catch {
      // No network, blocked, or aborted: the library will send it again.
      return noAnswer;
    } finally {
      cancel?.();
      keptBytes -= bytes;
    }
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
