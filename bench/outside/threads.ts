// A load by several threads, which share its rate and its connections.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { type MergedSecond, mergeSeconds, type Second } from './second.js';

export type Load = {
  readonly url: string;
  /** The name of a way. */
  readonly way: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly appIds: readonly string[];
  /** A file of records. */
  readonly payloads: string | undefined;
  readonly gzip: boolean;
  readonly connections: number;
  /** Requests per second; undefined: as fast as they are answered. */
  readonly rate: number | undefined;
  readonly seconds: number;
  readonly threads: number;
};

export type ThreadPart = Omit<Load, 'threads'> & { readonly keyPrefix: string };

export type LoadResult = {
  readonly seconds: readonly MergedSecond[];
  /** The share of one core that each thread of the generator used. */
  readonly generatorShare: number;
};

/** Settles when all threads have ended. `onSecond` is told what a thread has counted of a second. */
export async function runLoad(load: Load, onSecond: (second: Second) => void): Promise<LoadResult> {
  const count = Math.min(load.threads, load.connections);
  const seconds: Second[] = [];
  const cpuBefore = process.cpuUsage();
  const startedAt = performance.now();
  await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const part: ThreadPart = {
        ...load,
        connections: shareOf(load.connections, count, index),
        rate: load.rate === undefined ? undefined : load.rate / count,
        keyPrefix: `${randomBytes(6).toString('hex')}-${index}`,
      };
      const worker = new Worker(new URL('./thread.js', import.meta.url), { workerData: part });
      worker.on('message', (second: Second) => {
        seconds.push(second);
        onSecond(second);
      });
      await once(worker, 'exit');
    }),
  );
  const { user, system } = process.cpuUsage(cpuBefore);
  const generatorShare = (user + system) / 1_000 / (performance.now() - startedAt) / count;
  return { seconds: mergeSeconds(seconds), generatorShare };
}

function shareOf(all: number, count: number, index: number): number {
  return Math.floor(all / count) + (index < all % count ? 1 : 0);
}
