// Calls that wait for their answer: requests about deletions, receipts and the administration. A call is repeated until its answer is
// final.

import { setTimeout } from 'node:timers/promises';
import { codeOfFault, errorOf, faultOf, isForLater, retryAfterMs } from './answers.js';
import { createBackoff } from './backoff.js';
import type { Settings } from './options.js';
import { parseObject } from './records.js';
import { type DeletionProgress, SluiceError } from './refusal.js';
import { type Answer, bodyOf, type Call, type Transport } from './transport.js';

export type Calls = ReturnType<typeof createCalls>;

export function createCalls(
  { gzip }: Pick<Settings, 'gzip'>,
  transport: Transport,
  signal: AbortSignal | undefined,
  progress?: () => DeletionProgress,
) {
  /** The error for an unexpected answer. */
  const fail = (answer: Answer): SluiceError => {
    const error = errorOf(parseObject(answer.text));
    const message = error === undefined ? faultOf(answer) : error.message;
    return new SluiceError(message, error?.code ?? codeOfFault(answer), answer.status, progress?.());
  };

  /**
   * Settles with the first final answer. Rejects with the signal's reason, or with SluiceError when the client is closed. `repeats`: also
   * repeats a request that may have been carried out. Otherwise a request is repeated only if it changes nothing, or if it was certainly
   * not carried out.
   */
  async function ask(
    method: Call['method'],
    path: string,
    authorization: string | undefined,
    body?: string,
    repeats: 'always' | 'if_nothing_was_done' = 'always',
  ): Promise<Answer> {
    const backoff = createBackoff();
    const sent = body === undefined ? undefined : await bodyOf(body, gzip);
    for (;;) {
      signal?.throwIfAborted();
      const answer = await transport.send({ method, path, authorization, ...(sent && { body: sent }) });
      const mayRepeat = repeats === 'always' || method === 'GET' || wasNothingDone(answer);
      const code = errorOf(parseObject(answer.text))?.code;
      if (!mayRepeat || !isForLater(code, answer.status)) return answer;
      if (answer.fault === 'closed') throw fail(answer);
      await pause(backoff.fail(retryAfterMs(answer)), signal);
    }
  }

  return { ask, fail };
}

function wasNothingDone({ text }: Answer): boolean {
  return ['overloaded', 'rate_limited'].includes(errorOf(parseObject(text))?.code ?? '');
}

/**
 * Keeps a token of the deletion API, which it gets with an API key. Calls `send` with the token's authorization; if the token has expired,
 * once more with a new one.
 */
export function createTokens(appId: string, apiKey: string) {
  const credentials = `Basic ${Buffer.from(`${appId}:${apiKey}`).toString('base64')}`;
  let token: string | undefined;

  async function getToken({ ask, fail }: Calls): Promise<string> {
    const answer = await ask('POST', '/api/public/v0/auth_token', credentials);
    const { access_token: got } = parseObject(answer.text) ?? {};
    if (answer.status !== 200 || typeof got !== 'string') throw fail(answer);
    return got;
  }

  return async (calls: Calls, send: (authorization: string) => Promise<Answer>): Promise<Answer> => {
    token ??= await getToken(calls);
    const answer = await send(`Bearer ${token}`);
    if (answer.status !== 401) return answer;
    token = await getToken(calls);
    return send(`Bearer ${token}`);
  };
}

/** Rejects with the signal's reason. */
export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await setTimeout(ms, undefined, { signal }).catch(() => signal?.throwIfAborted());
}

/** Divides what comes one after another, without the first `skipped`. */
export async function* chunksOf<Item>(
  all: Iterable<Item> | AsyncIterable<Item>,
  countMax: number,
  skipped = 0,
): AsyncGenerator<Item[], void, undefined> {
  let chunk: Item[] = [];
  let number = 0;
  for await (const item of all) {
    if (number++ < skipped) continue;
    chunk.push(item);
    if (chunk.length < countMax) continue;
    yield chunk;
    chunk = [];
  }
  if (chunk.length > 0) yield chunk;
}
