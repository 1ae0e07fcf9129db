// The plots of a session's page: what a table cannot show.

import type { TopLevelSpec } from 'vega-lite';
import { processNames } from '../deployment/deployment.js';
import { figure, median } from '../figures.js';
import type { Results } from '../results.js';
import { renderSvg } from './svg.js';

type Series = readonly { readonly x: number; readonly y: number; readonly line: string }[];

/** SVG by the name under which the page links it; only for measured scenarios. */
export async function plotsOf(results: Results): Promise<Record<string, string>> {
  const plots: Record<string, string> = {};
  for (const [name, draw] of Object.entries({ curve, seconds, latency, backlog })) {
    const spec = draw(results);
    if (spec !== undefined) plots[name] = await renderSvg(spec);
  }
  return plots;
}

/** Lines over time or rate; undefined without values. */
export function series(
  title: string,
  x: string,
  values: Series,
  scale: 'linear' | 'log' = 'linear',
): TopLevelSpec | undefined {
  if (values.length === 0) return undefined;
  const isLog = scale === 'log';
  return {
    title,
    width: 560,
    height: 240,
    data: { values: values.map((value) => ({ ...value, y: isLog ? Math.max(0.01, value.y) : value.y })) },
    mark: { type: 'line', strokeWidth: 1.5 },
    encoding: {
      x: { field: 'x', type: 'quantitative', title: x },
      y: {
        field: 'y',
        type: 'quantitative',
        title: null,
        scale: isLog ? { type: 'log' } : { zero: true },
        axis: isLog ? { format: '~', values: [0.01, 0.1, 1, 10, 100, 1e3, 1e4, 1e5] } : { format: '~s' },
      },
      color: { field: 'line', type: 'nominal', sort: null, legend: { labelLimit: 0 } },
    },
  };
}

function curve({ curve: levels = [] }: Results): TopLevelSpec | undefined {
  const lines = ['all', ...processNames] as const;
  const values = lines.flatMap((line) =>
    levels.map(({ share, runs }) => ({
      x: 100 * share,
      y: median(runs.map(({ cpu, cpuSum }) => (line === 'all' ? cpuSum : (cpu[line] ?? 0)))),
      line,
    })),
  );
  return series('CPU of a single event, µs', '% of the highest rate', values);
}

function seconds({ halfLoad }: Results): TopLevelSpec | undefined {
  const found = halfLoad?.runs[0]?.seconds ?? [];
  const values = (['p50', 'p99', 'max'] as const).flatMap((line) =>
    found.map((second) => ({ x: second.at, y: second[line], line })),
  );
  const rate = figure(halfLoad?.ratePerSecond);
  return series(`Latency since due at ${rate} events a second, ms, of each second`, 'seconds', values, 'log');
}

/** The number of nines of a percentile: 1 for 90 %, 2 for 99 %. */
function nines(percent: number): number {
  return -Math.log10(1 - percent / 100);
}

function latency({ halfLoad }: Results): TopLevelSpec | undefined {
  const values = (halfLoad?.runs ?? []).flatMap(({ subject, run }) =>
    (run.latency?.curve ?? [])
      .filter(({ percent }) => percent < 100)
      .map(({ percent, ms }) => ({ x: nines(percent), y: ms, line: subject })),
  );
  const spec = series('Acknowledgement by percentile, since due, ms', '', values, 'log');
  if (spec === undefined) return undefined;
  const labelExpr = "format(100 * (1 - pow(10, -datum.value)), '.4~') + ' %'";
  const axis = { values: [0, 50, 90, 99, 99.9, 99.99].map(nines), labelExpr };
  const { encoding } = spec as { encoding: object };
  const x = { field: 'x', type: 'quantitative', title: null, axis };
  return { ...spec, encoding: { ...encoding, x } } as TopLevelSpec;
}

function backlog({ backlog: found }: Results): TopLevelSpec | undefined {
  const values = (found?.left ?? []).map(({ seconds: x, events: y }) => ({ x, y, line: 'left' }));
  return series('Events left of the backlog', 'seconds since the workers started', values);
}
