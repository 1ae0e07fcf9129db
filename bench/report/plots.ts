// The plots of a session's page, from the same figures as its tables.

import type { TopLevelSpec } from 'vega-lite';
import { processNames } from '../deployment/deployment.js';
import { figure, median } from '../figures.js';
import { memoryOf } from '../latency/half-load.js';
import type { Results } from '../results.js';
import { inOrder, kinds, nameOf } from './sections.js';
import { colours, renderSvg } from './svg.js';
import { costsOf } from './targets.js';

const width = 560;
const powersOfTen = [0.01, 0.1, 1, 10, 100, 1000, 10_000, 100_000];
const byProcess = {
  field: 'process',
  type: 'nominal',
  scale: { domain: [...processNames], range: colours.slice(0, processNames.length) },
} as const;

/** SVG by the name under which the page links it; only for measured scenarios. */
export async function plotsOf(results: Results): Promise<Record<string, string>> {
  const specs: Record<string, TopLevelSpec | undefined> = {
    'cost-single': costs(results, 'single', 'CPU of a single event, µs'),
    'cost-bulk': costs(results, 'bulk', 'CPU of an event in bulk, µs'),
    curve: curve(results),
    seconds: seconds(results),
    latency: latency(results),
    memory: memory(results),
    backlog: backlog(results),
    flat: flat(results),
    one: one(results),
  };
  const plots: Record<string, string> = {};
  for (const [name, spec] of Object.entries(specs)) {
    if (spec !== undefined) plots[name] = await renderSvg(spec);
  }
  return plots;
}

/** Bars of CPU by process, each with its sum at the end. */
function bars(
  title: string,
  rows: readonly { readonly what: string; readonly runs: Results['ways'][number]['runs'] }[],
): TopLevelSpec | undefined {
  if (rows.length < 2) return undefined;
  const values = rows.flatMap(({ what, runs }) =>
    processNames.map((process, order) => ({
      what,
      process,
      order,
      used: median(runs.flatMap((run) => run.cpu[process] ?? [])) || 0,
    })),
  );
  const sums = rows.map(({ what, runs }) => ({ what, sum: median(costsOf(runs)) }));
  const sort = rows.map(({ what }) => what);
  const y = { field: 'what', type: 'nominal', title: null, sort, axis: { labelLimit: 0 } } as const;
  return {
    title,
    width,
    height: { step: 26 },
    layer: [
      {
        data: { values: values.filter(({ used }) => used > 0) },
        mark: { type: 'bar', cornerRadius: 1 },
        encoding: {
          y,
          x: { field: 'used', type: 'quantitative', title: null, stack: 'zero' },
          color: byProcess,
          order: { field: 'order', type: 'quantitative' },
        },
      },
      {
        data: { values: sums.map((row) => ({ ...row, text: figure(row.sum) })) },
        mark: { type: 'text', align: 'left', dx: 5 },
        encoding: { y, x: { field: 'sum', type: 'quantitative' }, text: { field: 'text', type: 'nominal' } },
      },
    ],
  };
}

function costs({ ways }: Results, kind: keyof typeof kinds, title: string): TopLevelSpec | undefined {
  const shown = inOrder(ways.filter(({ name }) => kinds[kind](name)));
  return bars(
    title,
    shown.map((way) => ({ what: nameOf(way), runs: way.runs })),
  );
}

function curve({ curve: levels = [] }: Results): TopLevelSpec | undefined {
  const rows = levels.map(({ share, runs }) => ({ what: `${Math.round(share * 100)} %`, runs }));
  return bars('CPU of a single event by load, µs', rows);
}

type Series = readonly { readonly x: number; readonly y: number; readonly line: string }[];

/** Lines over time or rate; undefined without values. */
export function series(
  title: string,
  x: string,
  values: Series,
  scale: 'linear' | 'log' = 'linear',
): TopLevelSpec | undefined {
  if (values.length === 0) return undefined;
  return {
    title,
    width,
    height: 240,
    data: { values: [...values] },
    mark: { type: 'line', strokeWidth: 1.5 },
    encoding: {
      x: { field: 'x', type: 'quantitative', title: x },
      y: {
        field: 'y',
        type: 'quantitative',
        title: null,
        scale: { type: scale, ...(scale === 'linear' && { zero: true }) },
        axis: { format: scale === 'log' ? '~' : '~s', ...(scale === 'log' && { values: powersOfTen }) },
      },
      color: { field: 'line', type: 'nominal', sort: null, legend: { labelLimit: 0 } },
    },
  };
}

function seconds({ halfLoad }: Results): TopLevelSpec | undefined {
  const found = halfLoad?.runs[0]?.seconds ?? [];
  const values = (['p50', 'p99', 'max'] as const).flatMap((line) =>
    found.map((second) => ({ x: second.at, y: Math.max(0.01, second[line]), line })),
  );
  const rate = figure(halfLoad?.ratePerSecond);
  return series(
    `Latency since due at ${rate} events per second, ms, of each second`,
    'seconds',
    values,
    'log',
  );
}

/** The number of nines of a percentile: 1 for 90 %, 2 for 99 %. */
function nines(percent: number): number {
  return -Math.log10(1 - percent / 100);
}

function latency({ halfLoad }: Results): TopLevelSpec | undefined {
  const values = (halfLoad?.runs ?? []).flatMap(({ subject, run }) =>
    (run.latency?.curve ?? [])
      .filter(({ percent }) => percent < 100)
      .map(({ percent, ms }) => ({ x: nines(percent), y: Math.max(0.01, ms), line: subject })),
  );
  const spec = series('Acknowledgement by percentile, since due, ms', '', values, 'log');
  if (spec === undefined) return undefined;
  const labelExpr = "format(100 * (1 - pow(10, -datum.value)), '.4~') + ' %'";
  const axis = { values: [0, 50, 90, 99, 99.9, 99.99].map(nines), labelExpr };
  const { encoding } = spec as { encoding: object };
  const x = { field: 'x', type: 'quantitative', title: null, axis };
  return { ...spec, encoding: { ...encoding, x } } as TopLevelSpec;
}

function memory({ halfLoad }: Results): TopLevelSpec | undefined {
  const values = processNames.flatMap((line) =>
    memoryOf(halfLoad?.samples ?? [], line).map(({ atMs, value }) => ({
      x: atMs / 60_000,
      y: value / 1e6,
      line,
    })),
  );
  return series('Resident memory, MB', 'minutes', values);
}

function backlog({ backlog: found }: Results): TopLevelSpec | undefined {
  const values = (found?.left ?? []).map(({ seconds: x, events: y }) => ({ x, y, line: 'left' }));
  const title = `Events left of the backlog, while ${figure(found?.ratePerSecond)} per second come`;
  return series(title, 'seconds since the workers started', values);
}

function flat({ flat: found }: Results): TopLevelSpec | undefined {
  if (found === undefined) return undefined;
  const points = (levels: typeof found.single, unit: number, line: string) =>
    levels.map(({ of, runs }) => ({ x: of / unit, y: median(costsOf(runs)), line }));
  return lines(
    {
      title: 'CPU of an event, µs, by millions stored',
      points: [
        ...points(found.single, 1e6, 'one event per request'),
        ...points(found.bulk, 1e6, 'bulk of 500'),
      ],
    },
    { title: 'by environments', points: points(found.environments, 1, 'one event per request') },
  );
}

/** Time and rewritten rows of one user's deletion, by the number of events. */
function one({ deletion }: Results): TopLevelSpec | undefined {
  if (deletion?.one === undefined) return undefined;
  const points = (value: 'completeSeconds' | 'rowsRewritten') =>
    (deletion.one ?? []).flatMap(({ events, everywhere, inOnePart }) => [
      { x: events / 1e6, y: median(everywhere.map((run) => run[value])), line: 'rows in many parts' },
      { x: events / 1e6, y: median(inOnePart.map((run) => run[value])), line: 'rows in one part' },
    ]);
  return lines(
    { title: 'Until complete, s, by millions of events', points: points('completeSeconds') },
    { title: 'Rows rewritten', points: points('rowsRewritten') },
  );
}

type LinePlot = { readonly title: string; readonly points: Series };

/** Two plots side by side with the same lines. Their horizontal axes are logarithmic; the vertical ones begin at 0. */
function lines(left: LinePlot, right: LinePlot): TopLevelSpec {
  const domain = [...new Set([...left.points, ...right.points].map(({ line }) => line))];
  const plot = ({ title, points }: LinePlot): TopLevelSpec => ({
    title: { text: title, fontSize: 12 },
    width: width / 2 - 50,
    height: 200,
    data: { values: [...points] },
    mark: { type: 'line', point: { filled: true, size: 40 }, strokeWidth: 2 },
    encoding: {
      x: {
        field: 'x',
        type: 'quantitative',
        title: null,
        scale: { type: 'log' },
        axis: { values: [...new Set(points.map(({ x }) => x))], format: '~s' },
      },
      y: { field: 'y', type: 'quantitative', title: null, scale: { zero: true }, axis: { format: '~s' } },
      color: {
        field: 'line',
        type: 'nominal',
        scale: { domain, range: colours.slice(0, domain.length) },
        legend: { symbolType: 'circle', labelLimit: 0 },
      },
    },
  });
  return { hconcat: [plot(left), plot(right)], spacing: 40 } as TopLevelSpec;
}
