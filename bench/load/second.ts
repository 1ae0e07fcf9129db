// The counts of a load, second by second. Threads send theirs to the main thread, which adds them up; the logs of several generators are
// added up in the same way.

import { decodeFromCompressedBase64, encodeIntoCompressedBase64 } from 'hdr-histogram-js';
import { bitBucketSize, type Histogram, newHistogram, record } from './histogram.js';

/** How a request ended: its status as text, with a refusal's code, or one of `endings`. */
export type Ending = string;

/** Endings other than a status: no answer in time; no connection, or one that broke; a 200 that refuses records; not sent. */
export const endings = {
  timeout: 'timeout',
  connection: 'connection',
  refused: 'partly-refused',
  unsent: 'unsent',
} as const;

/** A request that gets no answer for this long has failed. */
export const answerMsMax = 30_000;

/**
 * The ending of an answer. A refusal's has no blanks, as `400:missing_field`, since log tags cannot have them. `expected`: the body of a
 * good answer; null accepts any with status 200.
 */
export function endingOf(status: number, text: string, expected: string | null): Ending {
  if (status === 200) return expected === null || text === expected ? '200' : endings.refused;
  const [, code] = /"code":"([a-z_]{1,40})"/.exec(text) ?? [];
  return code === undefined ? String(status) : `${status}:${code}`;
}

/** The endings whose latency counts: good answers, and requests that waited in vain. A fast error is not a fast answer. */
const latent: readonly Ending[] = ['200', endings.timeout, endings.unsent];

/**
 * One second of one thread: when it began, in ms since 1970, and for each ending a compressed HdrHistogram of µs since the requests were
 * due (or, if there is no rate, since they were sent).
 */
export type Second = { readonly atMs: number; readonly endings: Readonly<Record<Ending, string>> };

/** One second of all threads. */
export type MergedSecond = { readonly atMs: number; readonly endings: Readonly<Record<Ending, Histogram>> };

/** Counts the requests of one thread by seconds, and passes on each second when it is over. */
export class SecondCounter {
  readonly #give: (second: Second) => void;
  #atMs = secondOf(Date.now());
  #endings: Record<Ending, Histogram> = {};

  constructor(give: (second: Second) => void) {
    this.#give = give;
  }

  count(ending: Ending, latencyMs: number): void {
    if (secondOf(Date.now()) !== this.#atMs) this.flush();
    this.#endings[ending] ??= newHistogram();
    record(this.#endings[ending], latencyMs);
  }

  /** Passes on the current second. */
  flush(): void {
    const counted = Object.entries(this.#endings);
    if (counted.length > 0) {
      const encoded = counted.map(([ending, histogram]) => [ending, encodeIntoCompressedBase64(histogram)]);
      this.#give({ atMs: this.#atMs, endings: Object.fromEntries(encoded) });
      this.#endings = {};
    }
    this.#atMs = secondOf(Date.now());
  }
}

/** Adds up the histograms of each second and ending; the seconds come in order. */
export function addUp(
  parts: Iterable<readonly [atMs: number, ending: Ending, histogram: Histogram]>,
): MergedSecond[] {
  const seconds = new Map<number, Record<Ending, Histogram>>();
  for (const [atMs, ending, histogram] of parts) {
    const at = secondOf(atMs);
    const second = seconds.get(at) ?? {};
    second[ending] ??= newHistogram();
    second[ending].add(histogram);
    seconds.set(at, second);
  }
  return [...seconds].map(([atMs, counted]) => ({ atMs, endings: counted })).sort((a, b) => a.atMs - b.atMs);
}

export function mergeSeconds(seconds: readonly Second[]): MergedSecond[] {
  const parts = seconds.flatMap(({ atMs, endings: counted }) =>
    Object.entries(counted).map(([ending, encoded]) => {
      const histogram = decodeFromCompressedBase64(encoded, bitBucketSize, false);
      return [atMs, ending, histogram] as const;
    }),
  );
  return addUp(parts);
}

export function countEndings(seconds: readonly MergedSecond[]): Record<Ending, number> {
  const counted: Record<Ending, number> = {};
  for (const second of seconds) {
    for (const [ending, { totalCount }] of Object.entries(second.endings)) {
      counted[ending] = (counted[ending] ?? 0) + totalCount;
    }
  }
  return counted;
}

/** All endings except good answers, with their numbers. */
export function endingsInWords(counted: Readonly<Record<Ending, number>>): string {
  const others = Object.entries(counted).filter(([ending]) => ending !== '200');
  return others.map(([ending, count]) => `${count} × ${ending}`).join(', ');
}

export function latenciesOf(seconds: readonly MergedSecond[]): Histogram {
  const sum = newHistogram();
  for (const second of seconds) {
    for (const ending of latent) if (second.endings[ending]) sum.add(second.endings[ending]);
  }
  return sum;
}

function secondOf(ms: number): number {
  return Math.floor(ms / 1_000) * 1_000;
}
