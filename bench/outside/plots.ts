// The plots of a load: its seconds, and of a search what each rate came to.

import type { TopLevelSpec } from 'vega-lite';
import type { MergedSecond } from '../load/second.js';
import { colours, renderSvg } from '../report/svg.js';
import { type Bound, latencyOf, percentiles } from './outcome.js';
import type { Tried } from './search.js';

const width = 560;
const shown = ['p50', 'p99', 'max'] as const;

/** Rate, errors and latency of each second. */
export function drawSeconds(seconds: readonly MergedSecond[]): Promise<string> {
  const fromMs = seconds[0]?.atMs ?? 0;
  const values = seconds.flatMap(({ atMs, endings, latencies }) => {
    const second = (atMs - fromMs) / 1_000;
    const latency = latencyOf(latencies);
    const good = endings['200'] ?? 0;
    return [
      { panel: 'requests per second', line: 'answered 200', second, value: good },
      { panel: 'requests per second', line: 'not', second, value: latencies.totalCount - good },
      ...shown.map((line) => ({ panel: 'latency, ms', line, second, value: latency[line] })),
    ];
  });
  return renderSvg({
    data: { values },
    facet: { row: { field: 'panel', type: 'nominal', title: null } },
    resolve: { scale: { y: 'independent' } },
    spec: {
      width,
      height: 160,
      mark: { type: 'line', strokeWidth: 1.5 },
      encoding: {
        x: { field: 'second', type: 'quantitative', title: 'seconds' },
        y: { field: 'value', type: 'quantitative', title: null },
        color: { field: 'line', type: 'nominal', scale: { range: [...colours] } },
      },
    },
  } as TopLevelSpec);
}

/** Latency by rate, with the bounds: the knee is where it leaves them. */
export function drawKnee(tried: readonly Tried[], bounds: readonly Bound[]): Promise<string> {
  const names = Object.keys(percentiles).filter(
    (name) => name === 'p50' || bounds.some(({ percentile }) => percentile === name),
  ) as (keyof typeof percentiles)[];
  const values = tried.flatMap(({ rate, outcome }) =>
    names.map((name) => ({ rate, line: name, ms: Math.max(0.01, outcome.latencyMs[name]) })),
  );
  const limits = bounds.map(({ percentile, ms }) => ({ ms, text: `${percentile} at most ${ms} ms` }));
  return renderSvg({
    title: 'Latency by rate, ms',
    width,
    height: 280,
    layer: [
      {
        data: { values },
        mark: { type: 'line', point: true, strokeWidth: 2 },
        encoding: {
          x: { field: 'rate', type: 'quantitative', title: 'requests per second' },
          y: { field: 'ms', type: 'quantitative', title: null, scale: { type: 'log' } },
          color: { field: 'line', type: 'nominal', scale: { range: [...colours] } },
        },
      },
      {
        data: { values: limits },
        mark: { type: 'rule', strokeDash: [4, 4] },
        encoding: { y: { field: 'ms', type: 'quantitative' } },
      },
    ],
  } as TopLevelSpec);
}
