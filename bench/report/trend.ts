// Decides whether a series rises, by the median of the slopes between all pairs of its points (Theil and Sen), which tolerates a quarter of
// outliers.

import type { ProcessName } from '../deployment/deployment.js';
import { median } from '../figures.js';

export type Point = { readonly atMs: number; readonly value: number };

export type Trend = ReturnType<typeof trendOf>;

/** By how many MiB of resident memory a process may grow in any run. */
export const memoryFloorMib: Readonly<Record<ProcessName, number>> = {
  api: 16,
  redis: 16,
  worker: 16,
  clickhouse: 256,
};

/** The share at the beginning of the series that counts as warm-up and is left out. */
const warmUp = 0.2;

/** The trend after the warm-up. Growth up to `floor` does not count, whatever the median is. */
export function trendOf(points: readonly Point[], floor: number) {
  const seen = points.slice(Math.floor(points.length * warmUp));
  const slopes: number[] = [];
  for (const [index, a] of seen.entries()) {
    for (const b of seen.slice(index + 1)) slopes.push((b.value - a.value) / (b.atMs - a.atMs));
  }
  const perMs = median(slopes) || 0;
  const growth = perMs * ((seen.at(-1)?.atMs ?? 0) - (seen[0]?.atMs ?? 0));
  const middle = median(seen.map(({ value }) => value)) || 0;
  const growthMax = Math.max(floor, middle / 10);
  return {
    median: middle,
    last: seen.at(-1)?.value ?? 0,
    perHour: perMs * 3_600_000,
    /** The growth over the measured time, computed from the slope. */
    growth,
    /** A series that grows by at most this much counts as flat. */
    growthMax,
    flat: growth <= growthMax,
  };
}
