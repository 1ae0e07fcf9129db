// The plots of a load: its seconds, and the rates of a search.

import type { TopLevelSpec } from 'vega-lite';
import { countEndings, latenciesOf, type MergedSecond } from '../load/second.js';
import { series } from '../report/plots.js';
import { renderSvg } from '../report/svg.js';
import { type Bound, latencyOf, type Percentile } from './outcome.js';
import type { Tried } from './search.js';

/** Rate, errors and latency of each second. */
export function drawSeconds(seconds: readonly MergedSecond[]): Promise<string> {
  const fromMs = seconds[0]?.atMs ?? 0;
  const at = seconds.map((second) => {
    const { '200': good = 0, ...others } = countEndings([second]);
    const bad = Object.values(others).reduce((sum, count) => sum + count, 0);
    return { x: (second.atMs - fromMs) / 1_000, good, bad, ...latencyOf(latenciesOf([second])) };
  });
  const lines = (names: readonly ('good' | 'bad' | Percentile)[]) =>
    names.flatMap((line) => at.map((second) => ({ x: second.x, y: second[line], line })));
  return renderSvg({
    vconcat: [
      series('Requests per second: answered 200, and not', 'seconds', lines(['good', 'bad'])),
      series('Latency, ms', 'seconds', lines(['p50', 'p99', 'max'])),
    ].filter((plot) => plot !== undefined),
  } as TopLevelSpec);
}

/** Latency by rate, with the bounds: the knee is where it exceeds them. */
export function drawKnee(tried: readonly Tried[], bounds: readonly Bound[]): Promise<string> {
  const names = new Set<Percentile>(['p50', ...bounds.map(({ percentile }) => percentile)]);
  const values = tried.flatMap(({ rate, outcome }) =>
    [...names].flatMap((line) => [
      { x: rate, y: outcome.latencyMs[line], line },
      ...bounds
        .filter(({ percentile }) => percentile === line)
        .map(({ ms }) => ({ x: rate, y: ms, line: `${line} at most ${ms} ms` })),
    ]),
  );
  return renderSvg(series('Latency by rate, ms', 'requests per second', values, 'log') as TopLevelSpec);
}
