// The counts of a load, second by second. Threads send theirs to the main thread, which adds them up.

import { decodeFromCompressedBase64, encodeIntoCompressedBase64 } from 'hdr-histogram-js';
import { bitBucketSize, type Histogram, newHistogram, record } from './histogram.js';

/** How a request ended: its status as text, or one of `endings`. */
export type Ending = string;

/** Endings without a status: no answer in time; no connection, or one that broke; a 200 that refuses records; not sent. */
export const endings = {
  timeout: 'timeout',
  connection: 'connection',
  refused: 'partly refused',
  unsent: 'unsent',
} as const;

/** One second of one thread. */
export type Second = {
  /** When it began, in ms since 1970. */
  readonly atMs: number;
  readonly endings: Readonly<Record<Ending, number>>;
  /** µs to the answer since a request was due (without a rate: since it was sent), as a compressed HdrHistogram. */
  readonly latencies: string;
};

/** One second of all threads. */
export type MergedSecond = {
  readonly atMs: number;
  readonly endings: Readonly<Record<Ending, number>>;
  readonly latencies: Histogram;
};

/** Counts one thread's seconds and passes each on when it is over. */
export class SecondCounter {
  readonly #give: (second: Second) => void;
  #atMs = secondOf(Date.now());
  #endings: Record<Ending, number> = {};
  #latencies = newHistogram();

  constructor(give: (second: Second) => void) {
    this.#give = give;
  }

  count(ending: Ending, latencyMs: number): void {
    this.turn();
    this.#endings[ending] = (this.#endings[ending] ?? 0) + 1;
    record(this.#latencies, latencyMs);
  }

  /** Begins the next second when it is time. */
  turn(): void {
    if (secondOf(Date.now()) !== this.#atMs) this.flush();
  }

  /** Passes on the current second. */
  flush(): void {
    if (this.#latencies.totalCount > 0) {
      const latencies = encodeIntoCompressedBase64(this.#latencies);
      this.#give({ atMs: this.#atMs, endings: this.#endings, latencies });
      this.#endings = {};
      this.#latencies.reset();
    }
    this.#atMs = secondOf(Date.now());
  }
}

/** The seconds of all threads, in order. */
export function mergeSeconds(seconds: readonly Second[]): MergedSecond[] {
  const merged = new Map<number, { atMs: number; endings: Record<Ending, number>; latencies: Histogram }>();
  for (const { atMs, endings, latencies } of seconds) {
    const into = merged.get(atMs) ?? { atMs, endings: {}, latencies: newHistogram() };
    for (const [ending, count] of Object.entries(endings)) {
      into.endings[ending] = (into.endings[ending] ?? 0) + count;
    }
    into.latencies.add(decodeFromCompressedBase64(latencies, bitBucketSize, false));
    merged.set(atMs, into);
  }
  return [...merged.values()].sort((a, b) => a.atMs - b.atMs);
}

function secondOf(ms: number): number {
  return Math.floor(ms / 1_000) * 1_000;
}
