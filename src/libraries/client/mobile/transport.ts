// The core's transport over the device's `fetch`. A phone lets an app that leaves the foreground finish its requests, so the last batches
// are ordinary requests.

import type { Clock, Transport, TransportAnswer } from '../core/adapters.js';
import { fetchAnswer } from '../core/fetching.js';
import { requestMs } from '../core/limits.js';
import { utf8Bytes } from '../core/text.js';
import type { Fetch } from './adapters.js';
import { platform } from './runtime.js';

/** Makes a transport. It looks up the device's `fetch` at each request, since that may become known later. */
export function createFetchTransport(clock: Clock, deviceFetch: () => Fetch | undefined): Transport {
  async function send(url: string, body: string, timeoutMs: number): Promise<TransportAnswer> {
    const abort = platform.AbortController && new platform.AbortController();
    const ask = async (signal: unknown) => {
      const fetch = deviceFetch() ?? platform.fetch;
      return fetch?.(url, {
        method: 'POST',
        headers: { 'Content-Type': 'text/plain;charset=UTF-8' },
        body,
        ...(signal !== undefined && { signal: signal as never }),
      });
    };
    return fetchAnswer(ask, clock, timeoutMs, abort);
  }

  return {
    send: (url, body, timeoutMs) => ({ answer: send(url, body, timeoutMs), outlivesPage: true }),
    sendAtExit: (url, body) => send(url, body, requestMs(utf8Bytes(body))),
  };
}
