// A load by several threads, which share its rate and its connections.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
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
  /** CPU time in µs of the generator, and the share of one core that each of its threads used. */
  readonly generatorCpu: number;
  readonly generatorShare: number;
};

/** A load whose threads wait for the start. */
export type PreparedLoad = {
  /** Settles when all is answered. It can be called once. */
  send(): Promise<LoadResult>;
  /** Ends the load: nothing more is sent. */
  stop(): void;
};

const json = { 'content-type': 'application/json' };

type Thread = {
  readonly send: (give: (second: Second) => void) => Promise<unknown>;
  readonly stop: () => void;
};

/** Settles when the first bodies are made. `onSecond` is told what a thread has counted of a second. */
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
  // A single one is this thread: its code is compiled already when the next load begins.
  const threads = await Promise.all(parts.map((part) => (count === 1 ? startHere(part) : startWorker(part))));
  return {
    send: async () => {
      const seconds: Second[] = [];
      const cpuBefore = process.cpuUsage();
      const startedAt = performance.now();
      const give = (second: Second) => {
        seconds.push(second);
        onSecond(second);
      };
      await Promise.all(threads.map(({ send }) => send(give)));
      const elapsedMs = performance.now() - startedAt;
      const { user, system } = process.cpuUsage(cpuBefore);
      const generatorCpu = user + system;
      return {
        seconds: mergeSeconds(seconds),
        elapsedSeconds: elapsedMs / 1_000,
        generatorCpu,
        generatorShare: generatorCpu / 1_000 / elapsedMs / count,
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
  // `send` reports it.
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
    // One that waits for the start has nothing to end.
    stop: () => (started ? worker.postMessage('stop') : void worker.terminate()),
  };
}

/** The same at once. */
export async function runLoad(load: Load, onSecond?: (second: Second) => void): Promise<LoadResult> {
  return (await prepareLoad(load, onSecond)).send();
}

/** The requests of a load. Throws BenchError, which counts the others, unless each was answered as it should. */
export function allAnswered(seconds: readonly MergedSecond[]): number {
  const counted = countEndings(seconds);
  const good = counted['200'] ?? 0;
  const others = Object.entries(counted).filter(([ending]) => ending !== '200');
  if (others.length > 0 || good === 0) {
    const words = others.map(([ending, count]) => `${count} × ${ending}`).join(', ');
    throw new BenchError(`${good} requests were answered as they should, the others: ${words || 'none'}`);
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
