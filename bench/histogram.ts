// Counts of durations, fine enough for tails: exact up to 2 ms, within a thousandth above. What it takes does
// not depend on how many are recorded, so that half an hour of load fits, and several can be added up.

import { rankOf } from './figures.js';

/** Values below this are counted each by itself; above, as many to every doubling. */
const exactValues = 2048;
const halfOf = exactValues / 2;
const exactBits = 11;
/** 2^31 µs: 35 minutes. Longer ones count as this. */
const valueBits = 31;
const valueMax = 2 ** valueBits - 1;

/** The percentiles that a curve of the tail is drawn from. */
const curvePercents = [0, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 100];

/** In ms. */
export type CurvePoint = { readonly percent: number; readonly ms: number };

export class Histogram {
  readonly #counts = new Float64Array(exactValues + (valueBits - exactBits) * halfOf);
  #count = 0;
  #max = 0;
  #sum = 0;

  get count(): number {
    return this.#count;
  }

  /** In µs, as recorded; 0 when nothing was. */
  get max(): number {
    return this.#max;
  }

  /** In µs; NaN when nothing was recorded. */
  get mean(): number {
    return this.#sum / this.#count;
  }

  /** Counts one duration in µs; fractions are rounded, what is below 0 (a clock's jitter) counts as 0. */
  record(microseconds: number): void {
    const value = Math.min(Math.max(Math.round(microseconds), 0), valueMax);
    const at = indexOf(value);
    this.#counts[at] = (this.#counts[at] as number) + 1;
    this.#count += 1;
    this.#sum += value;
    if (value > this.#max) this.#max = value;
  }

  /** Adds what another one counted. */
  add(other: Histogram): void {
    for (let i = 0; i < this.#counts.length; i++) {
      this.#counts[i] = (this.#counts[i] as number) + (other.#counts[i] as number);
    }
    this.#count += other.#count;
    this.#sum += other.#sum;
    this.#max = Math.max(this.#max, other.#max);
  }

  /** In µs: the smallest value that at least `percent` of all do not exceed, to the histogram's precision. */
  percentile(percent: number): number {
    if (this.#count === 0) return Number.NaN;
    const wanted = Math.max(1, rankOf(percent, this.#count));
    let seen = 0;
    for (let i = 0; i < this.#counts.length; i++) {
      seen += this.#counts[i] as number;
      if (seen >= wanted) return Math.min(lastValueOf(i), this.#max);
    }
    return this.#max;
  }

  /** The tail in ms, for a plot. */
  curve(): CurvePoint[] {
    return curvePercents.map((percent) => ({ percent, ms: this.percentile(percent) / 1000 }));
  }
}

/** The first 2048 counters are for one value each, every further 1024 for twice as wide a range. */
function indexOf(value: number): number {
  if (value < exactValues) return value;
  const shift = 32 - Math.clz32(value) - exactBits;
  return shift * halfOf + (value >>> shift);
}

/** The largest value that a counter is for. */
function lastValueOf(index: number): number {
  if (index < exactValues) return index;
  const shift = Math.floor(index / halfOf) - 1;
  return (index - shift * halfOf + 1) * 2 ** shift - 1;
}
