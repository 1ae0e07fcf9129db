// What is kept of the latencies of a run: a few percentiles, and the curve of the tail.

import type { Latencies } from '../load/open-loop.js';
import { type CurvePoint, curveOf, type Histogram, percentileMs } from './histogram.js';

/** In ms. */
export type Spread = { readonly p50: number; readonly p99: number; readonly max: number };

/** Of acknowledgements; `Latencies` says from when each counts. */
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
    curve: curveOf(latencies.acknowledged),
  };
}

export function spreadOf(histogram: Histogram): Spread {
  return {
    p50: percentileMs(histogram, 50),
    p99: percentileMs(histogram, 99),
    max: percentileMs(histogram, 100),
  };
}
