// The sections of a session's page: for each scenario the method, the plot and the table. The terminal shows the same tables.

import { processNames } from '../deployment/deployment.js';
import { sumCpu } from '../deployment/meter.js';
import type { ProgramRun } from '../deployment/program.js';
import { type Column, figure, median, medianOf, rangeText, type Table, tableOf } from '../figures.js';
import { memoryOf } from '../latency/half-load.js';
import type { Spread } from '../load/histogram.js';
import type { Results, WayRuns } from '../results.js';
import type { FlatLevel } from '../throughput/flat.js';
import type { Run } from '../throughput/measure.js';
import type { ServersResult } from '../throughput/servers.js';
import type { ThroughputRun } from '../throughput/throughput.js';
import { sluiceWays } from '../throughput/ways.js';
import { deletionSections } from './deletion.js';
import { deskSections } from './desk.js';
import type { Section } from './section.js';
import { costsOf, isSaturated } from './targets.js';
import { memoryFloorMib, trendOf } from './trend.js';

/** One section per measured scenario. */
export function sectionsOf(results: Results): Section[] {
  return [
    ...waySections(results),
    ...curveSection(results),
    ...halfLoadSection(results),
    ...backlogSection(results),
    ...flatSection(results),
    ...keysSection(results),
    ...programSection('Backfill', 'flights by the import program', results.backfill),
    ...programSection('Producer', 'events by the library for servers', results.producer),
    ...serversSection(results),
    ...deletionSections(results.deletion),
    ...deskSections(results.desk),
  ];
}

/** Per commit: its events, and CPU of the API and of Redis in µs. */
export function commitFigures({ commits, cpu, records }: Run) {
  if (commits === undefined || commits.count === 0) return undefined;
  const of = (each: number | undefined) => ((each ?? Number.NaN) * records) / commits.count;
  return { events: commits.records / commits.count, api: of(cpu.api), redis: of(cpu.redis) };
}

type HasRuns = { readonly runs: readonly ThroughputRun[] };

/** Rate, CPU by process, and what limited the runs. */
const costColumns: readonly Column<HasRuns>[] = [
  ['records/s', ({ runs }) => medianOf(runs, (run) => run.recordsPerSecond)],
  ...processNames.map(
    (name): Column<HasRuns> => [name, ({ runs }) => medianOf(runs, (run) => run.cpu[name])],
  ),
  ['CPU, µs', ({ runs }) => median(costsOf(runs))],
  ['of the runs', ({ runs }) => rangeText(costsOf(runs)) ?? ''],
  [
    "the kernel's",
    ({ runs }) =>
      medianOf(runs, ({ systemCpu }) => systemCpu && Object.values(systemCpu).reduce((a, b) => a + b)),
  ],
  ['generator', ({ runs }) => medianOf(runs, (run) => run.generatorCpu)],
  ['limit', ({ runs }) => [...new Set(runs.map(({ limit }) => limit))].join(', ')],
];
const commitColumns: readonly Column<HasRuns>[] = [
  ['records a commit', ({ runs }) => medianOf(runs, (run) => commitFigures(run)?.events)],
  ['api a commit, µs', ({ runs }) => medianOf(runs, (run) => commitFigures(run)?.api)],
  ['redis a commit, µs', ({ runs }) => medianOf(runs, (run) => commitFigures(run)?.redis)],
];
const endColumns: readonly Column<HasRuns>[] = [
  ["others' share", ({ runs }) => medianOf(runs, (run) => run.othersShare)],
  ['runs', ({ runs }) => runs.length],
];

function wayTable(ways: readonly WayRuns[]): Table {
  return tableOf<WayRuns>(ways, [
    ['', nameOf],
    ['connections', ({ connections }) => connections],
    ...costColumns,
    ['rows an insert', ({ rowsPerInsert }) => rowsPerInsert],
    ...commitColumns,
    ['p99 since due, ms', ({ runs }) => medianOf(runs, (run) => run.latency?.sinceDueMs.p99)],
    ...endColumns,
  ]);
}

const floorSubjects = ['uws', 'engine', 'redis'];

/** A floor that the generator or the disk limited is not called one. */
export function nameOf({ what, subject, runs }: WayRuns): string {
  return floorSubjects.includes(subject) && !isSaturated(runs) ? `${what} (not saturated: no floor)` : what;
}

export const kinds = {
  single: (name: string) => /^(uws|redis-single|single|node-http-single|fastify-single)/.test(name),
  bulk: (name: string) => /^(engine|redis-bulk|bulk-|node-http-bulk|fastify-bulk)/.test(name),
};

/** Floors first, then the service, then peers. */
export function inOrder(ways: readonly WayRuns[]): WayRuns[] {
  const place = ({ name, subject }: WayRuns) => {
    if (subject === 'sluice') return 1 + sluiceWays.findIndex((way) => way.name === name);
    return /^(fastify|node)/.test(subject) ? 1000 : 0;
  };
  return [...ways].sort((a, b) => place(a) - place(b));
}

function waySections({ ways }: Results): Section[] {
  if (ways.length === 0) return [];
  const ofKind = (kind: keyof typeof kinds) => inOrder(ways.filter(({ name }) => kinds[kind](name)));
  const [single, bulk] = [ofKind('single'), ofKind('bulk')];
  const others = ways.filter((way) => !single.includes(way) && !bulk.includes(way));
  const generators = [...new Set(ways.flatMap(({ runs }) => runs.map(({ generator }) => generator)))];
  const note = `${costNote} ${generators.includes('wrk') ? wrkNote : ''}`.trim();
  const plotOf = (kind: string, shows: string) => [[`cost-${kind}`, shows]] as const;
  const section = (title: string, rows: readonly WayRuns[], more: Partial<Section> = {}): Section[] =>
    rows.length === 0 ? [] : [{ title, note: '', ...more, tables: [wayTable(rows)] }];
  const shown = [
    ...section('Highest rates, and the cost of a record', single, {
      note,
      plots: plotOf('single', 'CPU of a single event by process'),
    }),
    ...section('In bulk', bulk, { plots: plotOf('bulk', 'CPU of an event in bulk by process') }),
    ...section('Other requests', others),
  ];
  const compared = ways.some(({ subject }) => subject !== 'sluice');
  return shown.map((one, i) => ({
    ...one,
    ...(i === shown.length - 1 && compared && { end: comparedWith }),
  }));
}

const costNote = `Medians of the runs. CPU is in µs per record, user and system, counted until everything was stored; later merges of
ClickHouse do not count. CPU per commit is all CPU of the process, divided by its commits. The load generator runs on the same
cores and takes its CPU from the service. "Limit" says what kept a run from being faster: a process of the service used up its
core, or the generator did; all cores were busy; or both waited for each other or for the disk. A floor that was not the limit
itself is not called one. "Others' share" is the share of the machine's CPU time that other programs used: the higher it is, the
noisier the run.`;

const wrkNote = `Single requests were sent by wrk, which takes a seventh of the service's CPU.`;

const comparedWith = `Floors: uWebSockets.js reads the body and answers \`{}\`. With a synced file it first appends the body to a file, and bodies
that arrive together share an fdatasync. ClickHouse gets the same rows, in blocks as large as those of bulk-500, by the inserts
that a worker makes, for as long as a run of the service; its CPU counts. Redis gets the bytes of the service's commits by APPEND,
in as many commands as a commit has, and syncs its file before every answer.

Peers get the very same bodies. Fastify checks them with its schema, limits single events by INCR, claims keys by SET NX and adds
one BullMQ job per request; a worker inserts the jobs of a quarter of a second together. node:http inserts each request by
ClickHouse's \`async_insert\` and answers when it is stored; it has no limits and no keys. Both store into a plain table whose
inserts are not synced.`;

function curveSection({ curve = [] }: Results): Section[] {
  if (curve.length === 0) return [];
  const full = curve.find(({ share }) => share === 1)?.runs ?? [];
  const times = (runs: readonly Run[]) =>
    median(runs.map(({ cpuSum }, round) => cpuSum / (full[round]?.cpuSum ?? Number.NaN)));
  const table = tableOf(curve, [
    ['of the highest rate', ({ share }) => `${Math.round(share * 100)} %`],
    ...costColumns,
    ['times of full load', ({ runs }) => times(runs)],
    ...commitColumns,
    ['p99 since due, ms', ({ runs }) => medianOf(runs, (run) => run.latency?.sinceDueMs.p99)],
    ...endColumns,
  ]);
  const plots = [['curve', 'CPU of a single event by load']] as const;
  return [{ title: 'The cost of an event by load', note: curveNote, plots, tables: [table] }];
}

const curveNote = `One event per request, sent by the bench. Each round begins at full load, as fast as events are answered. The other rates
are shares of that rate, and each request is sent when it is due.`;

function halfLoadSection({ halfLoad }: Results): Section[] {
  if (halfLoad === undefined) return [];
  const { runs, minutes, ratePerSecond, queryable, samples } = halfLoad;
  const names: Readonly<Record<string, string>> = {
    sluice: 'Sluice',
    'sluice-probed': 'Sluice, with probes',
    uws: 'uWebSockets.js alone',
    'uws-synced': 'uWebSockets.js and a synced file',
  };
  const [sluice] = runs;
  const ofSeconds = (value: (second: Spread) => number) => (sluice?.seconds ?? []).map(value);
  const latency = tableOf(runs, [
    ['since due, ms', ({ subject }) => names[subject]],
    ['p50', ({ run }) => run.latency?.sinceDueMs.p50],
    ['p99', ({ run }) => run.latency?.sinceDueMs.p99],
    ['p99 of each minute', ({ p99OfMinutes }) => p99OfMinutes.map(figure).join(' ')],
    ['max', ({ run }) => run.latency?.sinceDueMs.max],
    ['requests', ({ run }) => run.requests],
    ['CPU, µs', ({ run }) => run.cpuSum],
    ['limit', ({ run }) => run.limit],
    ["others' share", ({ run }) => run.othersShare],
  ]);
  const mb = (bytes: number) => bytes / 1e6;
  const trend = (name: (typeof processNames)[number]) =>
    trendOf(memoryOf(samples, name), memoryFloorMib[name] * 1024 ** 2);
  const memory = tableOf(processNames, [
    ['resident memory, MB', (name) => name],
    ['median', (name) => mb(trend(name).median)],
    ['last', (name) => mb(trend(name).last)],
    ['growth by its trend', (name) => mb(trend(name).growth)],
    ['may grow', (name) => mb(trend(name).growthMax)],
  ]);
  const worst = `The worst second had a p99 of ${figure(Math.max(...ofSeconds(({ p99 }) => p99)))} ms; half of all seconds had at most ${figure(median(ofSeconds(({ p99 }) => p99)))}.`;
  const seen = `${figure(queryable.probes)} probes could be queried after p50 ${figure(queryable.ms.p50)}, p99 ${figure(queryable.ms.p99)}, max ${figure(queryable.ms.max)} ms, asked ${figure(queryable.questionsPerSecond)} times a second.`;
  return [
    {
      title: 'Half load, second by second',
      note: `${figure(ratePerSecond)} events a second for ${minutes} min, half of the highest rate, one per request. ${halfLoadNote}`,
      plots: [
        ['seconds', 'Each second at half load: latency since due'],
        ['latency', 'Acknowledgement by percentile'],
        ['memory', 'Memory of each process over time'],
      ],
      tables: [latency, memory],
      end: `${worst} ${seen}`,
    },
  ];
}

const halfLoadNote = `Each request is sent when it is due, whether or not earlier ones were answered. Its latency counts from then, so it includes
delays of the generator. A minute with probes follows, which ask ClickHouse all the time, and then floors at the same rate, for a
minute each, with nothing else running: a server that only answers,
and one that appends the bodies to a file and answers after \`fdatasync\`. The second shows what the disk adds to any durable
acknowledgement. "Queryable" counts from a probe's acknowledgement to the first answer of ClickHouse that shows it. The trend of
memory is the median of the slopes between all pairs of samples after the first fifth.`;

function backlogSection({ backlog }: Results): Section[] {
  if (backlog === undefined) return [];
  const { events, segments, redisBytesPerEvent, ratePerSecond, drainSeconds, drainedPerSecond, latency } =
    backlog;
  const { p50, p99, max } = latency.sinceDueMs;
  const note = `${figure(events)} events waited in ${figure(segments)} segments, each event with ${figure(redisBytesPerEvent)} bytes of Redis. Of the segments above 100 kB
the worst took ${figure(backlog.memoryTimesMost)} times the bytes of its rows (MEMORY USAGE by STRLEN). While ${figure(ratePerSecond)} more came per second, all were stored
after ${figure(drainSeconds)} s: ${figure(drainedPerSecond)} per second. CPU in µs per event: ${cpuText(backlog.cpu)}. Acknowledgements meanwhile, since due: p50 ${figure(p50)}, p99 ${figure(p99)}, max ${figure(max)} ms.`;
  return [{ title: 'A backlog', note, plots: [['backlog', 'The backlog over time']] }];
}

function cpuText(cpu: Run['cpu']): string {
  return Object.entries(cpu)
    .map(([name, microseconds]) => `${name} ${figure(microseconds)}`)
    .join(', ');
}

function flatSection({ flat }: Results): Section[] {
  if (flat === undefined) return [];
  const named = (levels: readonly FlatLevel[], what: (level: FlatLevel) => string) =>
    levels.map((level) => ({ ...level, what: what(level) }));
  const levels = [
    ...named(flat.single, ({ of }) => `single events, ${figure(of / 1e6)} million stored`),
    ...named(flat.bulk, ({ of }) => `bulk of 500, ${figure(of / 1e6)} million stored`),
    ...named(flat.environments, ({ of }) => `single events, ${figure(of)} environments`),
  ];
  const table = tableOf(levels, [['', ({ what }) => what], ...costColumns, ...endColumns]);
  const plots = [['flat', 'CPU of an event by what is stored']] as const;
  return [{ title: 'Flat', note: flatNote, plots, tables: [table] }];
}

const flatNote = `Deployments with fewer and with more stored events stood side by side and took turns, and so did few and many
environments of one of them. Turns matter: within minutes a shared machine gets slower or faster by half.`;

function keysSection({ keys }: Results): Section[] {
  if (keys === undefined) return [];
  const table = tableOf(keys.levels, [
    ['keys in the index', (level) => level.keys || 'none was forgotten'],
    ['µs per event, new key', ({ newKeys }) => median(newKeys)],
    ['of the runs', ({ newKeys }) => rangeText(newKeys)],
    ['repeat', ({ repeats }) => median(repeats)],
    ['of the runs', ({ repeats }) => rangeText(repeats)],
    ['scattered repeat', ({ scattered = [] }) => median(scattered)],
    ['of the runs', ({ scattered = [] }) => rangeText(scattered)],
    [
      `at ${figure(keys.levels[1]?.atRate?.perSecond)} a second: behind, s`,
      ({ atRate }) => atRate?.behindSeconds,
    ],
  ]);
  const note = `${keysNote} Adding a key to the index and forgetting it takes ${figure(keys.addMicroseconds)} µs; it takes ${figure(keys.bytesPerKey)} bytes on disk.`;
  return [{ title: 'Idempotency keys', note, tables: [table] }];
}

const keysNote = `Bulk requests of 500 events with keys, before any key was forgotten and then with more and more keys in the index. CPU of all
processes but the generator. A repeat is an event whose key Redis has forgotten and the index holds; it is not stored. Repeats come in
the order of before, as when a load is done again; scattered repeats come from all over what was sent before. Behind: ten
seconds of new keys came at this rate, and so long after the last was due all were stored.`;

function programSection(title: string, what: string, run: Results['producer'] | ProgramRun): Section[] {
  if (run === undefined) return [];
  const { events, acknowledgedSeconds, storedSeconds, cpu, programCpu, othersShare } = run;
  const memory =
    'producerBytes' in run ? ` It used ${figure(run.producerBytes / 1e6)} MB of memory at most.` : '';
  const note = `${figure(events)} ${what}, from one process: acknowledged after ${figure(acknowledgedSeconds)} s, stored after ${figure(storedSeconds)} s,
${figure(events / storedSeconds)} per second. CPU in µs per event: ${cpuText(cpu)}, the program ${figure(programCpu)}; others' share ${figure(othersShare)}.${memory}`;
  return [{ title, note }];
}

function serversSection({ servers }: Results): Section[] {
  if (servers === undefined) return [];
  const levels = servers.ways.flatMap(({ name, levels: its }) =>
    its.map((level) => ({ ...level, what: `${name}, ${level.of} of each` })),
  );
  const costs = tableOf(levels, [['', ({ what }) => what], ...costColumns, ...commitColumns, ...endColumns]);
  const idle = tableOf(servers.idle, [
    ['ms of CPU a second, nothing sent', ({ of }) => `${of} of each`],
    ...processNames.map((name): Column<ServersResult['idle'][number]> => [name, ({ cpu }) => cpu[name]]),
    ['sum', ({ cpu }) => sumCpu(cpu)],
  ]);
  const note = serversNote(servers.shards);
  return [{ title: 'Several Redis masters and ClickHouse servers', note, tables: [costs, idle] }];
}

const serversNote = (
  shards: number,
) => `The same events at the same rate to deployments with one, two and three Redis masters and as many ClickHouse servers,
which stood side by side and took turns. All else is the same: ${shards} shards, one API process, one worker, 60 environments without
limits, and ports instead of Unix sockets. At this rate the shards share the events, so commits and inserts are small. That is
why an event costs more than in the other scenarios. The costs include what the processes use while nothing is sent.`;
