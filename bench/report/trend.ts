// Decides whether a series rises, by the median of the slopes between all pairs of its points (Theil and Sen). Up to a
// quarter of outliers does not change it.

import type { ProcessName } from '../deployment/deployment.js';

export type Point = { readonly atMs: number; readonly value: number };

export type Trend = {
  readonly median: number;
  readonly last: number;
  /** In units of the value per hour. */
  readonly perHour: number;
  /** By how much the series grew, by its slope, over the measured time. */
  readonly growth: number;
  /** The growth that a flat series may show. */
  readonly growthMax: number;
  readonly flat: boolean;
};

/** MiB of resident memory by which a process may grow in any run. */
export const memoryFloorMib: Readonly<Record<ProcessName, number>> = {
  api: 16,
  redis: 16,
  worker: 16,
  clickhouse: 256,
};

/** The share of the series, at its beginning, in which processes warm up. */
const warmUp = 0.2;

/** The trend of a series after its warm-up. Growth up to `floor` means nothing, whatever the median is. */
export function trendOf(points: readonly Point[], floor: number): Trend {
  const seen = points.slice(Math.floor(points.length * warmUp));
  const slopes: number[] = [];
  for (const [index, a] of seen.entries()) {
    for (const b of seen.slice(index + 1)) slopes.push((b.value - a.value) / (b.atMs - a.atMs));
  }
  const perMs = medianOf(slopes);
  const growth = perMs * ((seen.at(-1)?.atMs ?? 0) - (seen[0]?.atMs ?? 0));
  const median = medianOf(seen.map(({ value }) => value));
  const growthMax = Math.max(floor, median / 10);
  return {
    median,
    last: seen.at(-1)?.value ?? 0,
    perHour: perMs * 3_600_000,
    growth,
    growthMax,
    flat: growth <= growthMax,
  };
}

function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  if (sorted.length % 2 === 1) return sorted[middle] as number;
  return sorted.length === 0 ? 0 : ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}
