// The tables of a session, as rows of cells: the terminal and the page write the same.

import { type ProcessName, processNames } from '../deployment/deployment.js';
import { figure, median } from '../figures.js';
import type { Results, WayRuns } from '../results.js';
import { growthOf } from '../soak.js';
import { commitFigures, timesOfUws } from '../throughput/connections.js';
import type { Run } from '../throughput/measure.js';
import { peerWays } from '../throughput/ways.js';
import { costsToGenerator, medianCost, targetsOf, toReference } from './targets.js';

export type Table = { readonly head: readonly string[]; readonly rows: readonly (readonly string[])[] };

export function targetTable(results: Results): Table {
  const rows = targetsOf(results).map(({ what, unit, value, bound, kind, spread, verdict }) => [
    what,
    `${figure(value)}${unit}`,
    spread === undefined ? '' : `${figure(spread.least)} to ${figure(spread.most)}`,
    `${kind} ${figure(bound)}${unit}`,
    verdict,
  ]);
  return { head: ['', 'measured', 'by single runs', 'target', ''], rows };
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

/** CPU in user mode and of the kernel apart. */
export function connectionsTable({ connections }: Results): Table {
  const rows = (connections?.levels ?? []).map((level) => {
    const { sluice, uws, keys } = level;
    const of = (runs: readonly Run[], value: (run: Run) => number | undefined) => {
      const values = runs.flatMap((run) => value(run) ?? []);
      return figure(values.length === 0 ? undefined : median(values));
    };
    const parts = (name: ProcessName) => {
      const system = (run: Run) => run.systemCpu?.[name];
      const user = (run: Run) => (run.cpu[name] ?? Number.NaN) - (system(run) ?? Number.NaN);
      return `${of(sluice, user)} + ${of(sluice, system)}`;
    };
    return [
      `${level.connections}${keys ? ', with keys' : ''}`,
      of(sluice, (run) => run.recordsPerSecond),
      of(sluice, (run) => commitFigures(run)?.events),
      ...processNames.map(parts),
      of(sluice, (run) => run.cpuSum),
      of(uws, (run) => run.cpuSum),
      figure(timesOfUws(level)),
      of(sluice, (run) => commitFigures(run)?.api),
      of(sluice, (run) => commitFigures(run)?.redis),
      of(sluice, (run) => run.generatorCpu),
      of(uws, (run) => run.recordsPerSecond),
      of(sluice, (run) => run.othersShare),
      String(sluice.length),
    ];
  });
  const head = [
    'connections',
    'events/s',
    'events a commit',
    ...processNames.map((name) => `${name}, user + system`),
    'CPU, µs',
    'uWebSockets.js alone',
    'times',
    'api a commit, µs',
    'redis a commit',
    'generator',
    'uWebSockets.js alone, requests/s',
    "others' share",
    'runs',
  ];
  return { head, rows };
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

/** What an event with a key costs, by keys in the index. */
export function keysTable({ keys }: Results): Table {
  const rows = (keys?.levels ?? []).map((level) => [
    level.keys === 0 ? 'none was forgotten' : figure(level.keys),
    figure(median(level.newKeys)),
    level.repeats.length === 0 ? '' : figure(median(level.repeats)),
  ]);
  return { head: ['keys in the index', 'µs an event, new key', 'µs an event, repeat'], rows };
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
