// Durations in HdrHistograms: exact up to 2 ms, within a thousandth above. Their size does not depend on the number of durations, and they
// can be added up.

import { build, type Histogram } from 'hdr-histogram-js';

export type { Histogram } from 'hdr-histogram-js';

/** 20 minutes in µs; longer durations are recorded as this. */
const microsecondsMax = 1_200_000_000;
export const bitBucketSize = 32;

/** The points of a plot of the tail. */
const curvePercents = [0, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 100];

export function newHistogram(): Histogram {
  return build({
    bitBucketSize,
    highestTrackableValue: microsecondsMax,
    numberOfSignificantValueDigits: 3,
    useWebAssembly: false,
  });
}

/** Records one duration. A value below 0, caused by the clock's jitter, counts as 0. */
export function record(histogram: Histogram, ms: number): void {
  histogram.recordValue(Math.min(Math.max(Math.round(ms * 1_000), 0), microsecondsMax));
}

/** A percentile in ms, within the histogram's precision. NaN if the histogram is empty. */
export function percentileMs(histogram: Histogram, percent: number): number {
  if (histogram.totalCount === 0) return Number.NaN;
  // At 100 the library returns the upper end of the last bucket.
  const value = Math.min(histogram.getValueAtPercentile(percent), histogram.maxValue);
  return value / 1_000;
}

export type Spread = { readonly p50: number; readonly p99: number; readonly max: number };

export function spreadOf(histogram: Histogram): Spread {
  const [p50, p99, max] = [50, 99, 100].map((percent) => percentileMs(histogram, percent));
  return { p50, p99, max } as Spread;
}

export type LatencyFigures = ReturnType<typeof latencyFigures>;

/** The latencies of acknowledgements, from when each request was due. */
export function latencyFigures(histogram: Histogram) {
  return { sinceDueMs: spreadOf(histogram), curve: curveOf(histogram) };
}

export function curveOf(histogram: Histogram) {
  return curvePercents.map((percent) => ({ percent, ms: percentileMs(histogram, percent) }));
}
