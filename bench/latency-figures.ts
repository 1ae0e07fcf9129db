// What is kept of the latencies of a run: a few percentiles, and the curve of its tail.

import type { CurvePoint, Histogram } from './histogram.js';
import type { Latencies } from './open-loop.js';

/** In ms. */
export type Spread = { readonly p50: number; readonly p99: number; readonly max: number };

/** Of acknowledgements; what each counts from is with `Latencies`. */
export type LatencyFigures = {
  readonly acknowledgedMs: Spread;
  readonly sinceSentMs: Spread;
  readonly sinceDueMs: Spread;
  readonly curve: readonly CurvePoint[];
};

export function latencyFigures(latencies: Latencies): LatencyFigures {
  return {
    acknowledgedMs: spreadOf(latencies.acknowledged),
    sinceSentMs: spreadOf(latencies.sinceSent),
    sinceDueMs: spreadOf(latencies.sinceDue),
    curve: latencies.acknowledged.curve(),
  };
}

export function spreadOf(histogram: Histogram): Spread {
  return {
    p50: histogram.percentile(50) / 1000,
    p99: histogram.percentile(99) / 1000,
    max: histogram.max / 1000,
  };
}
