// The plots of a session's page, each from the same figures as its table.

import type { TopLevelSpec } from 'vega-lite';
import { processNames } from '../deployment/deployment.js';
import { figure, median } from '../figures.js';
import type { Results } from '../results.js';
import { colours, ink, renderSvg } from './svg.js';
import { nameOfSubject } from './tables.js';
import { costsToGenerator, toReference } from './targets.js';

const width = 560;
const powersOfTen = [0.01, 0.1, 1, 10, 100, 1000, 10_000, 100_000];
const colourOf = { domain: [...processNames], range: colours.slice(0, processNames.length) };

export const singleNames = [
  'uws',
  'uws-few',
  'uws-synced',
  'redis-single',
  'single',
  'single-few',
  'single-keys',
  'node-http-single',
  'fastify-single',
  'fastify-single-keys',
];
export const bulkNames = [
  'engine-native',
  'engine',
  'redis-bulk',
  'bulk-10',
  'bulk-100',
  'bulk-500',
  'bulk-500-keys',
  'bulk-500-limits',
  'bulk-1000',
  'node-http-bulk-500',
  'fastify-bulk-500',
  'fastify-bulk-500-keys',
];

/** By the names under which the page links them; only for what was measured. */
export async function plotsOf(results: Results): Promise<Record<string, string>> {
  const specs: Record<string, TopLevelSpec | undefined> = {
    'cost-single': costs(results, singleNames, 'CPU of a single event, µs'),
    'cost-bulk': costs(results, bulkNames, 'CPU of an event in bulk, µs'),
    latency: latency(results),
    segments: segments(results),
    backlog: backlog(results),
    flat: flat(results),
    soak: soak(results),
  };
  const plots: Record<string, string> = {};
  for (const [name, spec] of Object.entries(specs)) {
    if (spec !== undefined) plots[name] = await renderSvg(spec);
  }
  return plots;
}

function costs({ ways }: Results, names: readonly string[], title: string): TopLevelSpec | undefined {
  const shown = names.flatMap((name) => ways.find((way) => way.name === name) ?? []);
  const values = shown.flatMap(({ what, runs }) =>
    processNames.flatMap((process) => {
      const used = runs.flatMap((run) => run.cpu[process] ?? []);
      return used.length === 0
        ? []
        : [{ what, process, used: median(used), order: processNames.indexOf(process) }];
    }),
  );
  const sums = shown.flatMap(({ what, runs }) => {
    const all = runs.flatMap(({ cpuSum }) => cpuSum ?? []);
    return all.length === 0 ? [] : [{ what, sum: median(all), text: figure(median(all)) }];
  });
  if (sums.length < 2) return undefined;
  const y = {
    field: 'what',
    type: 'nominal',
    title: null,
    sort: shown.map(({ what }) => what),
    axis: { labelLimit: 0 },
  } as const;
  return {
    title,
    width,
    height: { step: 26 },
    layer: [
      {
        data: { values },
        mark: { type: 'bar', cornerRadius: 1 },
        encoding: {
          y,
          x: { field: 'used', type: 'quantitative', title: null, stack: 'zero' },
          color: { field: 'process', type: 'nominal', scale: colourOf },
          order: { field: 'order', type: 'quantitative' },
        },
      },
      {
        data: { values: sums },
        mark: { type: 'text', align: 'left', dx: 5 },
        encoding: { y, x: { field: 'sum', type: 'quantitative' }, text: { field: 'text', type: 'nominal' } },
      },
    ],
  };
}

/** A percentile by its number of nines: 90 % is 1, 99 % is 2. */
function nines(percent: number): number {
  return -Math.log10(1 - percent / 100);
}

function latency({ latencies }: Results): TopLevelSpec | undefined {
  const values = latencies.flatMap(({ subject, share, ratePerSecond, runs }) => {
    const at = share === undefined ? '' : ` (${Math.round(share * 100)} %)`;
    const rate = `${figure(ratePerSecond)}/s${at}`;
    const percents = runs[0]?.latency.curve.map(({ percent }) => percent) ?? [];
    return percents
      .filter((percent) => percent < 100)
      .map((percent, i) => ({
        rate,
        subject: nameOfSubject(subject),
        nines: nines(percent),
        ms: Math.max(0.01, median(runs.map((run) => run.latency.curve[i]?.ms ?? Number.NaN))),
      }));
  });
  if (values.length === 0) return undefined;
  const ticks = [0, 50, 90, 99, 99.9, 99.99].map(nines);
  return {
    title: 'Acknowledgement by percentile, ms',
    width,
    height: 280,
    data: { values },
    mark: { type: 'line', interpolate: 'monotone', strokeWidth: 2 },
    encoding: {
      x: {
        field: 'nines',
        type: 'quantitative',
        title: null,
        axis: { values: ticks, labelExpr: "format(100 * (1 - pow(10, -datum.value)), '.4~') + ' %'" },
      },
      y: {
        field: 'ms',
        type: 'quantitative',
        title: null,
        scale: { type: 'log' },
        axis: { format: '~', values: powersOfTen },
      },
      color: { field: 'rate', type: 'nominal', sort: null, legend: { labelLimit: 0 } },
      strokeDash: {
        field: 'subject',
        type: 'nominal',
        scale: {
          domain: ['sluice', 'uws', 'uws-synced'].map(nameOfSubject),
          range: [
            [1, 0],
            [4, 3],
            [1, 2],
          ],
        },
        legend: { labelLimit: 0, symbolSize: 400, symbolStrokeWidth: 2 },
      },
    },
  };
}

function segments({ segments: found }: Results): TopLevelSpec | undefined {
  if (found === undefined) return undefined;
  const values = found.segments
    .filter(({ rows }) => rows > 0)
    .map(({ bytes, memoryBytes }) => ({ kB: bytes / 1000, ratio: memoryBytes / bytes }));
  return {
    title: 'Memory of a sealed segment in Redis, to the bytes of its rows',
    width,
    height: 220,
    layer: [
      {
        data: { values },
        mark: { type: 'point', filled: true, size: 40, opacity: 0.7, color: colours[0] },
        encoding: {
          x: {
            field: 'kB',
            type: 'quantitative',
            title: 'bytes of rows, kB',
            scale: { type: 'log' },
            axis: { format: '~', values: powersOfTen },
          },
          y: { field: 'ratio', type: 'quantitative', title: null, scale: { domainMin: 1 } },
        },
      },
      {
        data: { values: [{ ratio: 1.35 }] },
        mark: { type: 'rule', strokeDash: [4, 3], color: ink.faint },
        encoding: { y: { field: 'ratio', type: 'quantitative' } },
      },
    ],
  };
}

function backlog({ backlog: found }: Results): TopLevelSpec | undefined {
  if (found === undefined) return undefined;
  return {
    title: `Events of the backlog that are left, while ${figure(found.ratePerSecond)} a second come`,
    width,
    height: 220,
    data: { values: [...found.left] },
    mark: { type: 'area', color: colours[0], opacity: 0.8 },
    encoding: {
      x: { field: 'seconds', type: 'quantitative', title: 'seconds since the workers started' },
      y: { field: 'events', type: 'quantitative', title: null, axis: { format: '~s' } },
    },
  };
}

function flat({ flat: found }: Results): TopLevelSpec | undefined {
  if (found === undefined) return undefined;
  const byEvents = found.byEvents.flatMap((level) => [
    { line: 'one event a request', x: level.events / 1e6, y: toReference(level, 'single') ?? 0 },
    { line: 'bulk of 500', x: level.events / 1e6, y: toReference(level, 'bulk') ?? 0 },
  ]);
  const byEnvironments = found.byEnvironments.map(({ environments, single }) => ({
    line: 'one event a request',
    x: environments,
    y: median(costsToGenerator(single)),
  }));
  return lines(
    { title: "CPU of an event to the reference's, by millions stored", points: byEvents },
    { title: "to the generator's, by environments", points: byEnvironments },
  );
}

export type LinePlot = {
  readonly title: string;
  readonly points: readonly { readonly x: number; readonly y: number; readonly line: string }[];
};

/** Two plots side by side with the same lines. The horizontal axes are logarithmic, the vertical ones begin at 0. */
export function lines(left: LinePlot, right: LinePlot): TopLevelSpec {
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

function soak({ soak: found }: Results): TopLevelSpec | undefined {
  if (found === undefined || found.samples.length === 0) return undefined;
  const values = found.samples.flatMap(({ seconds, memory }) =>
    processNames.map((process) => ({ minutes: seconds / 60, process, MB: memory[process] / 1e6 })),
  );
  return {
    title: `Resident memory at ${figure(found.ratePerSecond)} events a second, MB`,
    width,
    height: 240,
    data: { values },
    mark: { type: 'line', strokeWidth: 1.5 },
    encoding: {
      x: { field: 'minutes', type: 'quantitative', title: 'minutes' },
      y: { field: 'MB', type: 'quantitative', title: null, scale: { zero: true } },
      color: { field: 'process', type: 'nominal', scale: colourOf },
    },
  };
}
