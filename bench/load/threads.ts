// A load by several threads, which share its rate and its connections.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { generating } from '../deployment/meter.js';
import { BenchError } from '../failure.js';
import { type MergedSecond, mergeSeconds, type Second } from './second.js';
import { prepareSender, type SenderPart } from './sender.js';

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
};

/** A load whose threads wait for the start. */
type PreparedLoad = {
  /** Settles when all is answered. Call it once. */
  send(): Promise<LoadResult>;
  /** Ends the load: nothing more is sent. */
  stop(): void;
};

const json = { 'content-type': 'application/json' };

type Thread = {
  readonly send: (give: (second: Second) => void) => Promise<unknown>;
  readonly stop: () => void;
};

/** Settles when the first bodies are made. `onSecond` gets the counts of each second of each thread. */
export async function prepareLoad(
  load: Load,
  onSecond: (second: Second) => void = () => undefined,
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
  // A single one is this thread: V8 has already compiled its code when the next load begins.
  const threads = await Promise.all(parts.map((part) => (count === 1 ? startHere(part) : startWorker(part))));
  return {
    send: async () => {
      const seconds: Second[] = [];
      const give = (second: Second) => {
        seconds.push(second);
        onSecond(second);
      };
      const sent = await generating(() => Promise.all(threads.map(({ send }) => send(give))));
      return {
        seconds: mergeSeconds(seconds),
        elapsedSeconds: sent.seconds,
        generatorCpu: sent.generatorCpu,
        generatorShare: sent.generatorShare / count,
      };
    },
    stop: () => {
      for (const { stop } of threads) stop();
    },
  };
}

function startHere(part: SenderPart): Thread {
  const stop = new AbortController();
  const send = prepareSender(part);
  return { send: (give) => send(give, stop.signal), stop: () => stop.abort() };
}

async function startWorker(workerData: SenderPart): Promise<Thread> {
  const worker = new Worker(new URL('./thread.js', import.meta.url), { workerData });
  const ended = once(worker, 'exit');
  // `send` reports a rejection.
  ended.catch(() => undefined);
  await once(worker, 'message');
  let started = false;
  return {
    send: (give) => {
      started = true;
      worker.on('message', give);
      worker.postMessage('start');
      return ended;
    },
    stop: () => (started ? worker.postMessage('stop') : void worker.terminate()),
  };
}

/** Prepares a load and sends it at once. */
export async function runLoad(load: Load, onSecond?: (second: Second) => void): Promise<LoadResult> {
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

export function countEndings(seconds: readonly MergedSecond[]): Record<string, number> {
  const counted: Record<string, number> = {};
  for (const { endings } of seconds) {
    for (const [ending, count] of Object.entries(endings)) counted[ending] = (counted[ending] ?? 0) + count;
  }
  return counted;
}
