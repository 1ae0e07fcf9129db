// Plots the seconds of a load, and the rates of a search.

import type { TopLevelSpec } from 'vega-lite';
import { countEndings, latenciesOf, type MergedSecond } from '../load/second.js';
import { lineSpec } from '../report/plots.js';
import { renderSvg } from '../report/svg.js';
import { type Bound, latencyOf, type Percentile } from './outcome.js';
import type { Tried } from './search.js';

export function drawSeconds(seconds: readonly MergedSecond[]): Promise<string> {
  const fromMs = seconds[0]?.atMs ?? 0;
  const at = seconds.map((second) => {
    const { '200': good = 0, ...others } = countEndings([second]);
    const bad = Object.values(others).reduce((sum, count) => sum + count, 0);
    return { x: (second.atMs - fromMs) / 1_000, good, bad, ...latencyOf(latenciesOf([second])) };
  });
  const plot = (title: string, lines: readonly ('good' | 'bad' | Percentile)[]) => {
    const values = lines.flatMap((line) => at.map((second) => ({ x: second.x, y: second[line], line })));
    return lineSpec({ title, x: 'seconds', values });
  };
  const rates = plot('Requests per second: answered 200, and not', ['good', 'bad']);
  return renderSvg({ vconcat: [rates, plot('Latency, ms', ['p50', 'p99', 'max'])] } as TopLevelSpec);
}

/** Latency by rate, with the bounds. The knee is where the latency exceeds them. */
export function drawKnee(tried: readonly Tried[], bounds: readonly Bound[]): Promise<string> {
  const names = new Set<Percentile>(['p50', ...bounds.map(({ percentile }) => percentile)]);
  const values = tried.flatMap(({ rate: x, outcome }) => [
    ...[...names].map((line) => ({ x, y: outcome.latencyMs[line], line })),
    ...bounds.map(({ percentile, ms }) => ({ x, y: ms, line: `${percentile} at most ${ms} ms` })),
  ]);
  return renderSvg(lineSpec({ title: 'Latency by rate, ms', x: 'requests per second', values, isLog: true }));
}
