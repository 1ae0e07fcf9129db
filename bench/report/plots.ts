// The plots of a session's page, for what a table cannot show.

import type { TopLevelSpec } from 'vega-lite';
import { processNames } from '../deployment/deployment.js';
import { figure, median } from '../figures.js';
import type { Results } from '../results.js';
import { renderSvg } from './svg.js';

/** Lines over time or rate. */
type Plot = {
  readonly title: string;
  readonly x: string;
  readonly values: readonly { readonly x: number; readonly y: number; readonly line: string }[];
  readonly isLog?: boolean;
  /** Options of the x axis, unless x is a number. */
  readonly axis?: object;
};

/** SVG by the name under which the page links to it; only for measured scenarios. */
export async function plotsOf(results: Results): Promise<Record<string, string>> {
  const plots: Record<string, string> = {};
  for (const [name, draw] of Object.entries({ curve, seconds, latency, backlog })) {
    const plot = draw(results);
    if (plot.values.length > 0) plots[name] = await renderSvg(lineSpec(plot));
  }
  return plots;
}

export function lineSpec({ title, x, values, isLog = false, axis }: Plot): TopLevelSpec {
  const scale = isLog ? ({ type: 'log' } as const) : { zero: true };
  const labels = isLog ? { format: '~', values: [0.01, 0.1, 1, 10, 100, 1e3, 1e4, 1e5] } : { format: '~s' };
  return {
    title,
    width: 560,
    height: 240,
    data: { values: values.map((value) => ({ ...value, y: isLog ? Math.max(0.01, value.y) : value.y })) },
    mark: { type: 'line', strokeWidth: 1.5 },
    encoding: {
      x: { field: 'x', type: 'quantitative', title: x === '' ? null : x, ...(axis && { axis }) },
      y: { field: 'y', type: 'quantitative', title: null, scale, axis: labels },
      color: { field: 'line', type: 'nominal', sort: null, legend: { labelLimit: 0 } },
    },
  };
}

function curve({ curve: levels = [] }: Results): Plot {
  const lines = ['all', ...processNames] as const;
  const values = lines.flatMap((line) =>
    levels.map(({ share, runs }) => ({
      x: 100 * share,
      y: median(runs.map(({ cpu, cpuSum }) => (line === 'all' ? cpuSum : (cpu[line] ?? 0)))),
      line,
    })),
  );
  return { title: 'CPU of a single event, µs', x: '% of the highest rate', values };
}

function seconds({ halfLoad }: Results): Plot {
  const found = halfLoad?.runs[0]?.seconds ?? [];
  const values = (['p50', 'p99', 'max'] as const).flatMap((line) =>
    found.map((second) => ({ x: second.at, y: second[line], line })),
  );
  const title = `Latency since due at ${figure(halfLoad?.ratePerSecond)} events a second, ms, of each second`;
  return { title, x: 'seconds', values, isLog: true };
}

/** The number of nines of a percentile: 1 for 90 %, 2 for 99 %. */
function nines(percent: number): number {
  return -Math.log10(1 - percent / 100);
}

function latency({ halfLoad }: Results): Plot {
  const values = (halfLoad?.runs ?? []).flatMap(({ subject, run }) =>
    (run.latency?.curve ?? [])
      .filter(({ percent }) => percent < 100)
      .map(({ percent, ms }) => ({ x: nines(percent), y: ms, line: subject })),
  );
  const labelExpr = "format(100 * (1 - pow(10, -datum.value)), '.4~') + ' %'";
  const axis = { values: [0, 50, 90, 99, 99.9, 99.99].map(nines), labelExpr };
  return { title: 'Acknowledgement by percentile, since due, ms', x: '', values, isLog: true, axis };
}

function backlog({ backlog: found }: Results): Plot {
  const values = (found?.left ?? []).map(({ seconds: x, events: y }) => ({ x, y, line: 'left' }));
  return { title: 'Events left of the backlog', x: 'seconds since the workers started', values };
}
