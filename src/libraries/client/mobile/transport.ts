// The core's transport over the device's `fetch`. A phone lets an app that leaves the foreground finish its requests, so the last batches
// are ordinary requests.

import type { Clock, Transport, TransportAnswer } from '../core/adapters.js';
import { requestMs } from '../core/limits.js';
import { utf8Bytes } from '../core/text.js';
import type { Fetch } from './adapters.js';
import { platform } from './runtime.js';

const noAnswer: TransportAnswer = { status: 0, body: '' };

/** Makes a transport. It looks up the device's `fetch` at each request, since that may become known later. */
export function createFetchTransport(clock: Clock, deviceFetch: () => Fetch | undefined): Transport {
  function send(url: string, body: string, timeoutMs: number): Promise<TransportAnswer> {
    const abort = platform.AbortController && new platform.AbortController();
    return new Promise((settle) => {
      const cancel = clock.setTimer(timeoutMs, () => {
        settle(noAnswer);
        abort?.abort();
      });
      void request(deviceFetch, url, body, abort?.signal)
        .catch(() => noAnswer)
        .then(settle)
        .then(cancel);
    });
  }

  return {
    send: (url, body, timeoutMs) => ({ answer: send(url, body, timeoutMs), outlivesPage: true }),
    sendAtExit: (url, body) => send(url, body, requestMs(utf8Bytes(body))),
  };
}

async function request(
  deviceFetch: () => Fetch | undefined,
  url: string,
  body: string,
  signal: unknown,
): Promise<TransportAnswer> {
  const fetch = deviceFetch() ?? platform.fetch;
  if (fetch === undefined) return noAnswer;
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'text/plain;charset=UTF-8' },
    body,
    ...(signal !== undefined && { signal: signal as never }),
  });
  const retryAfter = response.headers.get('Retry-After') ?? undefined;
  return { status: response.status, body: await response.text(), retryAfter };
}
