// One request by a function such as `fetch`, with a time-out. Whatever that function does, the caller gets an answer, or learns that there
// is none.

import type { Clock, TransportAnswer } from './adapters.js';

export type FetchResponse = {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): PromiseLike<string>;
};

type Abort = { readonly signal: unknown; abort(): void };

const noAnswer: TransportAnswer = { status: 0, body: '' };

/**
 * Settles with the answer; with none after `timeoutMs`, or if `fetch` fails (no network, blocked, aborted) or is absent. Never rejects. `fetch` gets
 * the signal of `abort`, where the platform has it.
 */
export async function fetchAnswer(
  fetch: (signal: unknown) => PromiseLike<FetchResponse | undefined>,
  clock: Clock,
  timeoutMs: number,
  abort: Abort | undefined,
): Promise<TransportAnswer> {
  let cancel = (): void => {};
  const timedOut = new Promise<TransportAnswer>((resolve) => {
    cancel = clock.setTimer(timeoutMs, () => {
      resolve(noAnswer);
      abort?.abort();
    });
  });
  const answered = async (): Promise<TransportAnswer> => {
    const response = await fetch(abort?.signal);
    if (response === undefined) return noAnswer;
    const retryAfter = response.headers.get('Retry-After') ?? undefined;
    return { status: response.status, body: await response.text(), retryAfter };
  };
  try {
    return await Promise.race([answered(), timedOut]);
  } catch {
    return noAnswer;
  } finally {
    cancel();
  }
}
