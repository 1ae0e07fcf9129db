// A load by several threads, which share its rate and its connections.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { generating } from '../deployment/meter.js';
import { BenchError } from '../failure.js';
import {
  countEndings,
  endings,
  endingsInWords,
  type MergedSecond,
  mergeSeconds,
  type Second,
} from './second.js';
import type { SenderPart } from './sender.js';

export type Load = Omit<SenderPart, 'headers' | 'keyPrefix'> & {
  readonly headers?: Readonly<Record<string, string>>;
  readonly threads: number;
};

/** For each thread, the prefix of its keys and names, and how many requests it sent. */
export type Sent = readonly { readonly keyPrefix: string; readonly requests: number }[];

export const json = { 'content-type': 'application/json' };

/** Threads without a load. They are reused, since V8 has already compiled their code. */
const idle: Worker[] = [];

/** Settles, when the first bodies are made, with a load whose threads wait for the start. */
export async function prepareLoad(load: Load) {
  const count = Math.min(load.threads, load.connections);
  const parts = Array.from({ length: count }, (_, index): SenderPart => {
    const more = index < load.connections % count ? 1 : 0;
    return {
      ...load,
      headers: load.headers ?? json,
      ahead: Math.ceil((load.ahead ?? 0) / count),
      connections: Math.floor(load.connections / count) + more,
      rate: load.rate && load.rate / count,
      requests: load.requests && Math.ceil(load.requests / count),
      keyPrefix: `${randomBytes(6).toString('hex')}-${index}`,
    };
  });
  const threads = await Promise.all(parts.map(startThread));
  const sent = parts.map(({ keyPrefix }) => ({ keyPrefix, requests: 0 }));
  const seconds: Second[] = [];
  const note = (part: { requests: number }) => (second: Second) => {
    seconds.push(second);
    const { [endings.unsent]: _, ...ended } = countEndings(mergeSeconds([second]));
    for (const count of Object.values(ended)) part.requests += count;
  };
  return {
    /** How many requests have ended so far. */
    answers: () => sent.reduce((sum, { requests }) => sum + requests, 0),
    /** Sends the load; settles when everything is answered. Call it once. */
    send: async () => {
      const sending = () => Promise.all(sent.map((part, index) => threads[index]?.send(note(part))));
      const found = await generating(sending);
      return {
        seconds: mergeSeconds(seconds),
        elapsedSeconds: found.seconds,
        /** CPU time of the generator in µs, and the share of one core that each of its threads used. */
        generatorCpu: found.generatorCpu,
        generatorShare: found.generatorShare / count,
        sent: sent as Sent,
      };
    },
    /** Ends the load: nothing more is sent. */
    stop: () => {
      for (const { stop } of threads) stop();
    },
  };
}

/** Gives a part to an idle thread or a new one, and settles when the thread is ready. */
async function startThread(part: SenderPart) {
  const worker = idle.pop() ?? new Worker(new URL('./thread.js', import.meta.url));
  worker.ref();
  let state: 'ready' | 'sending' | 'ended' = 'ready';
  const end = () => {
    state = 'ended';
    for (const event of ['message', 'error']) worker.removeAllListeners(event);
    worker.unref();
    idle.push(worker);
  };
  worker.postMessage(part);
  await once(worker, 'message');
  return {
    send: (give: (second: Second) => void) =>
      new Promise<void>((settle, reject) => {
        state = 'sending';
        worker.once('error', reject);
        worker.on('message', (message: Second | 'ended') => {
          if (message !== 'ended') return give(message);
          end();
          settle();
        });
        worker.postMessage('start');
      }),
    stop: () => {
      if (state === 'sending') worker.postMessage('stop');
      else if (state === 'ready') end();
    },
  };
}

/** The number of requests. Throws BenchError, which lists the other endings, unless every answer was good. */
export function allAnswered(seconds: readonly MergedSecond[]): number {
  const { '200': good = 0, ...others } = countEndings(seconds);
  const words = endingsInWords(others);
  if (words !== '' || good === 0) {
    throw new BenchError(`${good} requests were answered as they should, the others: ${words || 'none'}`);
  }
  return good;
}
