// The tables of a session, as rows of cells: the terminal and the page write the same.

import { processNames } from '../deployment.js';
import { figure, median } from '../figures.js';
import type { Results, WayRuns } from '../results.js';
import { growthOf } from '../soak.js';
import { peerWays } from '../ways.js';
import { costsToGenerator, medianCost, targetsOf, toReference } from './targets.js';

export type Table = { readonly head: readonly string[]; readonly rows: readonly (readonly string[])[] };

export function targetTable(results: Results): Table {
  const rows = targetsOf(results).map(({ what, unit, value, bound, kind, met }) => [
    what,
    `${figure(value)}${unit}`,
    `${kind} ${figure(bound)}${unit}`,
    met ? 'met' : 'missed',
  ]);
  return { head: ['', 'measured', 'target', ''], rows };
}

export function wayTable(ways: readonly WayRuns[]): Table {
  type Value = (way: WayRuns) => number | undefined;
  const ofRuns =
    (value: (run: WayRuns['runs'][number]) => number | undefined): Value =>
    ({ runs }) => {
      const values = runs.flatMap((run) => value(run) ?? []);
      return values.length === 0 ? undefined : median(values);
    };
  const columns: readonly (readonly [string, Value])[] = [
    ['connections', ({ connections }) => connections],
    ['requests/s', ofRuns((run) => run.requestsPerSecond)],
    ['records/s', ofRuns((run) => run.recordsPerSecond)],
    ...processNames.map((name): [string, Value] => [name, ofRuns((run) => run.cpu[name])]),
    ['CPU, µs', ofRuns((run) => run.cpuSum)],
    ['least', ({ runs }) => Math.min(...runs.map((run) => run.cpuSum ?? Number.NaN))],
    ['most', ({ runs }) => Math.max(...runs.map((run) => run.cpuSum ?? Number.NaN))],
    ['generator', ofRuns((run) => run.generatorCpu)],
    ['rows an insert', ({ rowsPerInsert }) => rowsPerInsert],
    ['records a script call', ofRuns((run) => run.redis && run.records / run.redis.evalshaCalls)],
    ["others' share", ofRuns((run) => run.othersShare)],
    ['runs', ({ runs }) => runs.length],
  ];
  return {
    head: ['', ...columns.map(([name]) => name)],
    rows: ways.map((way) => [way.what, ...columns.map(([, value]) => figure(value(way)))]),
  };
}

/** Of what latencies are measured of. */
export function nameOfSubject(subject: string): string {
  if (subject === 'sluice') return 'Sluice';
  return peerWays.find((way) => way.subject === subject)?.what ?? subject;
}

export function latencyTable({ latencies }: Results): Table {
  const rows = latencies.map(({ subject, share, ratePerSecond, runs }) => {
    const of = (value: (run: (typeof runs)[number]) => number | undefined) => {
      const values = runs.flatMap((run) => value(run) ?? []);
      return figure(values.length === 0 ? undefined : median(values));
    };
    const at = share === undefined ? '' : `, ${Math.round(share * 100)} % of the highest rate`;
    return [
      `${nameOfSubject(subject)}${at}`,
      figure(ratePerSecond),
      of((run) => run.latency.acknowledgedMs.p50),
      of((run) => run.latency.acknowledgedMs.p99),
      of((run) => run.latency.acknowledgedMs.max),
      of((run) => run.latency.sinceSentMs.p99),
      of((run) => run.latency.sinceDueMs.p99),
      of((run) => run.queryable?.ms.p50),
      of((run) => run.queryable?.ms.p99),
      of((run) => run.cpuSum),
      of((run) => run.othersShare),
      String(runs.length),
    ];
  });
  const head = [
    '',
    'requests/s',
    'acknowledged p50, ms',
    'p99',
    'max',
    'since sent, p99',
    'since due, p99',
    'queryable p50, ms',
    'p99',
    'CPU, µs',
    "others' share",
    'runs',
  ];
  return { head, rows };
}

export function flatTable({ flat }: Results): Table {
  return {
    head: ['CPU, µs an event', 'single', "reference's", 'times', 'bulk of 500', "reference's", 'times'],
    rows: (flat?.byEvents ?? []).map((level) => [
      `${figure(level.events / 1e6)} million stored events`,
      figure(medianCost(level.single)),
      figure(medianCost(level.reference.single)),
      figure(toReference(level, 'single')),
      figure(medianCost(level.bulk)),
      figure(medianCost(level.reference.bulk)),
      figure(toReference(level, 'bulk')),
    ]),
  };
}

export function flatEnvironmentsTable({ flat }: Results): Table {
  return {
    head: ['CPU, µs', 'single', "to the generator's"],
    rows: [
      ...(flat?.byEnvironments ?? []).map(({ environments, single }) => [
        `${figure(environments)} environments`,
        figure(medianCost(single)),
        figure(median(costsToGenerator(single))),
      ]),
    ],
  };
}

export function soakTable({ soak }: Results): Table {
  const mb = (bytes: number) => figure(bytes / 1e6);
  const rows = processNames.map((name) => {
    const { before, after } = growthOf(soak?.samples ?? [], name);
    return [name, mb(before), mb(after), figure(after / before)];
  });
  return { head: ['resident memory, MB', 'second quarter', 'last quarter', 'times'], rows };
}

/** Sealed segments by their size. */
export function segmentTable({ segments }: Results): Table {
  const bounds = [0, 10_000, 100_000, 1_000_000, Number.POSITIVE_INFINITY];
  const rows = bounds.slice(0, -1).flatMap((from, i) => {
    const to = bounds[i + 1] ?? 0;
    const found = (segments?.segments ?? []).filter(({ bytes }) => bytes > from && bytes <= to);
    if (found.length === 0) return [];
    const sum = (value: (segment: (typeof found)[number]) => number) =>
      found.reduce((total, segment) => total + value(segment), 0);
    const ratios = found.map(({ bytes, memoryBytes }) => memoryBytes / bytes);
    const name = Number.isFinite(to)
      ? `${figure(from / 1000)} to ${figure(to / 1000)} kB`
      : `above ${figure(from / 1000)} kB`;
    return [
      [
        name,
        figure(found.length),
        figure(sum(({ bytes }) => bytes) / sum(({ rows: count }) => count)),
        figure(sum(({ memoryBytes }) => memoryBytes) / sum(({ rows: count }) => count)),
        figure(median(ratios)),
        figure(Math.max(...ratios)),
      ],
    ];
  });
  return { head: ['bytes of rows', 'segments', 'bytes an event', 'memory an event', 'times', 'most'], rows };
}
