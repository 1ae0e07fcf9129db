// A load by several threads, which share its rate and its connections.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { generating } from '../deployment/meter.js';
import { BenchError } from '../failure.js';
import { countEndings, endings, type MergedSecond, mergeSeconds, type Second } from './second.js';
import type { SenderPart } from './sender.js';

export type Load = Omit<SenderPart, 'headers' | 'rate' | 'keyPrefix'> & {
  readonly headers?: Readonly<Record<string, string>>;
  /** Requests per second; undefined: as fast as they are answered. */
  readonly rate?: number | undefined;
  readonly threads: number;
};

export type LoadResult = {
  readonly seconds: readonly MergedSecond[];
  /** From the start to the last answer. */
  readonly elapsedSeconds: number;
  /** CPU time of the generator in µs, and the share of one core that each of its threads used. */
  readonly generatorCpu: number;
  readonly generatorShare: number;
  /** Of each thread: the prefix of its keys and names, and the bodies that it sent. */
  readonly sent: readonly { readonly keyPrefix: string; readonly requests: number }[];
};

/** A load whose threads wait for the start. */
type PreparedLoad = {
  /** Settles when all is answered. Call it once. */
  send(): Promise<LoadResult>;
  /** Ends the load: nothing more is sent. */
  stop(): void;
};

export const json = { 'content-type': 'application/json' };

/** Threads without a load: V8 has already compiled their code when the next load begins. */
const idle: Worker[] = [];

/** Settles when the first bodies are made. `onSecond` gets the counts of each second of each thread. */
export async function prepareLoad(
  load: Load,
  onSecond: (second: MergedSecond) => void = () => undefined,
): Promise<PreparedLoad> {
  const count = Math.min(load.threads, load.connections);
  const parts = Array.from({ length: count }, (_, index): SenderPart => {
    const more = index < load.connections % count ? 1 : 0;
    return {
      ...load,
      headers: load.headers ?? json,
      ahead: Math.ceil((load.ahead ?? 0) / count),
      connections: Math.floor(load.connections / count) + more,
      rate: load.rate === undefined ? undefined : load.rate / count,
      keyPrefix: `${randomBytes(6).toString('hex')}-${index}`,
    };
  });
  const threads = await Promise.all(parts.map(startThread));
  return {
    send: async () => {
      const sent = parts.map(({ keyPrefix }) => ({ keyPrefix, requests: 0 }));
      const seconds: Second[] = [];
      const sendPart = ({ send }: Thread, index: number) =>
        send((second) => {
          seconds.push(second);
          const [merged] = mergeSeconds([second]) as [MergedSecond];
          const { [endings.unsent]: _unsent, ...counted } = countEndings([merged]);
          const part = sent[index];
          if (part) part.requests += Object.values(counted).reduce((sum, each) => sum + each, 0);
          onSecond(merged);
        });
      const found = await generating(() => Promise.all(threads.map(sendPart)));
      return {
        seconds: mergeSeconds(seconds),
        elapsedSeconds: found.seconds,
        generatorCpu: found.generatorCpu,
        generatorShare: found.generatorShare / count,
        sent,
      };
    },
    stop: () => {
      for (const { stop } of threads) stop();
    },
  };
}

type Thread = {
  readonly send: (give: (second: Second) => void) => Promise<void>;
  readonly stop: () => void;
};

/** Gives a part to an idle thread or a new one; settles when it is ready. */
async function startThread(part: SenderPart): Promise<Thread> {
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
    send: (give) =>
      new Promise((settle, reject) => {
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

/** Prepares a load and sends it at once. */
export async function runLoad(load: Load, onSecond?: (second: MergedSecond) => void): Promise<LoadResult> {
  return (await prepareLoad(load, onSecond)).send();
}

/** The number of requests. Throws BenchError, which counts all other endings, unless every answer was good. */
export function allAnswered(seconds: readonly MergedSecond[]): number {
  const { '200': good = 0, ...others } = countEndings(seconds);
  const words = Object.entries(others).map(([ending, count]) => `${count} × ${ending}`);
  if (words.length > 0 || good === 0) {
    throw new BenchError(
      `${good} requests were answered as they should, the others: ${words.join(', ') || 'none'}`,
    );
  }
  return good;
}
