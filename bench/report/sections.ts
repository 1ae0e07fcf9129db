// The sections of a session's page: for each scenario the method, the plots and the tables, which the terminal shows too.

import { processNames } from '../deployment/deployment.js';
import { sumCpu } from '../deployment/meter.js';
import { type Column, cellText, figure, median, tableOf } from '../figures.js';
import { memoryOf } from '../latency/half-load.js';
import type { FoundOf, Results, WayRuns } from '../results.js';
import type { Run } from '../throughput/measure.js';
import type { ThroughputRun } from '../throughput/throughput.js';
import type { Level } from '../throughput/turns.js';
import { sluiceWays } from '../throughput/ways.js';
import { deletionSections, streamSection } from './deletion.js';
import { deskSections } from './desk.js';
import { each, ifFound, runsColumn, type Section } from './section.js';
import { costsAboveIdle, costsOf, isSaturated, timesOfFullLoad } from './targets.js';
import { memoryFloorMib, trendOf } from './trend.js';

/** One section per measured scenario. */
export function sectionsOf(results: Results): Section[] {
  const { ways, curve, halfLoad, backlog, flat, keys, servers, replicas, deletion, stream, desk } = results;
  return [
    ...(ways.length > 0 ? waySections(ways) : []),
    ...ifFound(curve, curveSection),
    ...ifFound(halfLoad, halfLoadSection),
    ...ifFound(backlog, backlogSection),
    ...ifFound(flat, flatSection),
    ...ifFound(keys, keysSection),
    ...programSection(results),
    ...ifFound(servers, serversSection),
    ...ifFound(replicas, replicasSection),
    ...ifFound(deletion, deletionSections),
    ...ifFound(stream, streamSection),
    ...ifFound(desk, deskSections),
  ];
}

type HasRuns = { readonly runs: readonly ThroughputRun[] };

/** µs of CPU per commit, including the commit's events. */
const ofCommit = (used: number | undefined, { commits, records }: Run) =>
  commits && ((used ?? Number.NaN) * records) / commits.count;
const sum = (values: Readonly<Record<string, number>> = {}) =>
  Object.values(values).reduce((total, value) => total + value, 0) || undefined;

/** Rate, CPU by process, and what limited the runs. */
const costColumns: readonly Column<HasRuns>[] = [
  each('records/s', (run) => run.recordsPerSecond),
  ['CPU, µs', ({ runs }) => costsOf(runs)],
  ...processNames.map((name) => each(name, (run: ThroughputRun) => run.cpu[name])),
  each("the kernel's", ({ systemCpu }) => sum(systemCpu)),
  each('generator', (run) => run.generatorCpu),
  ['limit', ({ runs }) => [...new Set(runs.map(({ limit }) => limit))].join(', ')],
];
const lastColumns: readonly Column<HasRuns>[] = [
  each('records a commit', ({ commits }) => commits && commits.records / commits.count),
  each('api a commit, µs', (run) => ofCommit(run.cpu.api, run)),
  each('redis a commit, µs', (run) => ofCommit(run.cpu.redis, run)),
  each('p99 since due, ms', (run) => run.latency?.sinceDueMs.p99),
  each("others' share", (run) => run.othersShare),
  runsColumn,
];

/** A way's name in the table, with its generator, which affects every cost, and whether a floor was not saturated. */
function nameOf({ what, subject, runs }: WayRuns): string {
  const isFloor = ['uws', 'engine', 'redis'].includes(subject);
  const by = runs[0]?.generator === 'wrk' ? ', by wrk' : '';
  return `${what}${by}${isFloor && !isSaturated(runs) ? ' (not saturated: no floor)' : ''}`;
}

/** Floors first, then the service, then peers. */
function inOrder(ways: readonly WayRuns[]): WayRuns[] {
  const position = ({ name, subject }: WayRuns) => {
    if (subject === 'sluice') return 1 + sluiceWays.findIndex((way) => way.name === name);
    return subject === 'fastify' ? 1000 : 0;
  };
  return [...ways].sort((a, b) => position(a) - position(b));
}

function waySections(ways: readonly WayRuns[]): Section[] {
  const connections: Column<WayRuns> = ['connections', (way) => way.connections];
  const columns: Column<WayRuns>[] = [['', nameOf], connections, ...costColumns, ...lastColumns];
  const single = ways.filter(({ name }) => /single|^uws/.test(name));
  const bulk = ways.filter(({ name }) => /bulk|^engine/.test(name));
  const others = ways.filter((way) => !single.includes(way) && !bulk.includes(way));
  const tables = [single, bulk, others].filter((rows) => rows.length > 0);
  const byWrk = shareOfWrk(ways);
  const wrkNote = `wrk took ${cellText(byWrk)} of the service's CPU where it sent the requests.`;
  const isCompared = ways.some(({ subject }) => subject !== 'sluice');
  const notes = [costNote, ...(byWrk.length > 0 ? [wrkNote] : []), ...(isCompared ? [comparedWith] : [])];
  const title = 'Highest rates, and the cost of a record';
  return [{ title, note: notes.join(' '), tables: tables.map((rows) => tableOf(inOrder(rows), columns)) }];
}

const costNote = `CPU is in µs per record, user and system, of all processes but the generator, until everything was stored; later merges
of ClickHouse do not count. CPU per commit is all CPU of the process, divided by its commits. The generator runs on the same
cores. "Limit" is what kept a run from being faster. "Others' share" is the share of the machine's CPU that other programs used: the
higher it is, the noisier the run.`;

/** The share of wrk in the CPU of the service, for each run. */
export function shareOfWrk(ways: readonly WayRuns[]): number[] {
  const runs = ways.filter(({ subject }) => subject === 'sluice').flatMap((way) => way.runs);
  return runs
    .filter(({ generator }) => generator === 'wrk')
    .map(({ generatorCpu, cpuSum }) => generatorCpu / cpuSum);
}

const comparedWith = `uWebSockets.js reads the body and answers \`{}\`. ClickHouse alone gets the rows of bulk-500, in blocks as
large, by the inserts that a worker makes. Fastify gets the very same bodies, checks them with its schema, limits single events by INCR
and adds one BullMQ job per request; a worker inserts the jobs of a quarter of a second together.`;

function curveSection(curve: FoundOf<'curve'>): Section[] {
  const table = tableOf(curve, [
    ['of the highest rate', ({ share }) => `${Math.round(share * 100)} %`],
    ...costColumns,
    ['times of full load', ({ runs }) => timesOfFullLoad(curve, runs)],
    ...lastColumns,
  ]);
  const plots = [['curve', 'CPU of a single event by load']] as const;
  return [{ title: 'The cost of an event by load', note: curveNote, plots, tables: [table] }];
}

const curveNote = `One event per request, sent by the bench. Each round begins at full load, as fast as events are answered. The other rates
are shares of that rate.`;

const halfLoadNames: Readonly<Record<string, string>> = {
  sluice: 'Sluice',
  'sluice-probed': 'Sluice, with probes',
  uws: 'uWebSockets.js alone',
  'uws-synced': 'uWebSockets.js and a synced file',
};

function halfLoadSection(halfLoad: FoundOf<'halfLoad'>): Section[] {
  const { runs, minutes, ratePerSecond, queryable, samples } = halfLoad;
  const latency = tableOf(runs, [
    ['since due, ms', ({ subject }) => halfLoadNames[subject] ?? subject],
    ['p50', ({ run }) => run.latency?.sinceDueMs.p50],
    ['p99', ({ run }) => run.latency?.sinceDueMs.p99],
    ['p99 of the minutes', ({ p99OfMinutes }) => p99OfMinutes],
    ['max', ({ run }) => run.latency?.sinceDueMs.max],
    ['requests', ({ run }) => run.requests],
    ['CPU, µs', ({ run }) => run.cpuSum],
    ['limit', ({ run }) => run.limit],
    ["others' share", ({ run }) => run.othersShare],
    ['runs', () => 1],
  ]);
  const trends = processNames.map((name) => ({
    name,
    ...trendOf(memoryOf(samples, name), memoryFloorMib[name] * 1024 ** 2),
  }));
  const memory = tableOf(trends, [
    ['resident memory, MB', ({ name }) => name],
    ['median', (trend) => trend.median / 1e6],
    ['last', ({ last }) => last / 1e6],
    ['growth by its trend', ({ growth }) => growth / 1e6],
    ['may grow', ({ growthMax }) => growthMax / 1e6],
  ]);
  const asked = `asked ${figure(queryable.questionsPerSecond)} times a second`;
  const probeColumns: Column<typeof queryable>[] = [
    ['queryable after, ms', () => asked],
    ['p50', ({ ms }) => ms.p50],
    ['p99', ({ ms }) => ms.p99],
    ['max', ({ ms }) => ms.max],
    ['probes', (one) => one.probes],
  ];
  const probes = tableOf([queryable], probeColumns);
  const p99s = (runs[0]?.seconds ?? []).map(({ p99 }) => p99);
  const worst = `The worst second had a p99 of ${figure(Math.max(...p99s))} ms; half of all seconds had at most ${figure(median(p99s))}.`;
  const load = `${figure(ratePerSecond)} events a second for ${minutes} min, half of the highest rate, one per request.`;
  const note = `${load} ${halfLoadNote} ${worst}`;
  const plots = [
    ['seconds', 'Each second at half load: latency since due'],
    ['latency', 'Acknowledgement by percentile'],
  ] as const;
  return [{ title: 'Half load, second by second', note, plots, tables: [latency, probes, memory] }];
}

const halfLoadNote = `Each request is sent when it is due, and its latency counts from then. A minute with probes follows, which ask ClickHouse all
the time, and then a minute of each floor with nothing else running: a server that only answers, and one that first appends the
bodies to a file and syncs it. "Queryable" counts from a probe's acknowledgement to the first answer of ClickHouse that shows it.
The trend of memory is the median of the slopes between all pairs of samples after the first fifth.`;

/** CPU of each process, and their sum. */
const processColumns = <Row>(cpuOf: (row: Row) => Run['cpu'], unit: string): Column<Row>[] => [
  [`CPU, ${unit}`, (row) => sumCpu(cpuOf(row))],
  ...processNames.map((name): Column<Row> => [name, (row) => cpuOf(row)[name]]),
];

function backlogSection(backlog: FoundOf<'backlog'>): Section[] {
  const columns: Column<typeof backlog>[] = [
    ['', ({ events }) => `${figure(events)} events`],
    ['segments', (one) => one.segments],
    ['bytes of Redis an event', (one) => one.redisBytesPerEvent],
    ['memory to bytes of rows, the worst', (one) => one.memoryTimesMost],
    ['drained after, s', (one) => one.drainSeconds],
    ['drained/s', (one) => one.drainedPerSecond],
    ...processColumns<typeof backlog>(({ cpu }) => cpu, 'µs'),
    ['p50 since due, ms', ({ latency }) => latency.sinceDueMs.p50],
    ['p99', ({ latency }) => latency.sinceDueMs.p99],
    ['max', ({ latency }) => latency.sinceDueMs.max],
    ['runs', () => 1],
  ];
  const note = `So many events waited in Redis; then the workers started, while ${figure(backlog.ratePerSecond)} more came per second. Memory is MEMORY USAGE by
STRLEN of the segments above 100 kB. Latencies are those of the events that came meanwhile.`;
  const plots = [['backlog', 'The backlog over time']] as const;
  return [{ title: 'A backlog', note, plots, tables: [tableOf([backlog], columns)] }];
}

function flatSection({ single, bulk, environments }: FoundOf<'flat'>): Section[] {
  const rows = (some: readonly Level[], what: string, unit: number, of: string) =>
    some.map((level) => ({ what: `${what}, ${figure(level.of / unit)} ${of}`, runs: level.runs }));
  const levels = [
    ...rows(single, 'single events', 1e6, 'million stored'),
    ...rows(bulk, 'bulk of 500', 1e6, 'million stored'),
    ...rows(environments, 'single events', 1, 'environments'),
  ];
  const table = tableOf(levels, [['', ({ what }) => what], ...costColumns, ...lastColumns]);
  const note = `Deployments with fewer and with more stored events stood side by side and took turns, and so did few and many environments of
one of them.`;
  return [{ title: 'Flat', note, tables: [table] }];
}

function keysSection(keys: FoundOf<'keys'>): Section[] {
  const table = tableOf(keys.levels, [
    ['keys in the index', (level) => (level.keys === 0 ? 'none was forgotten' : figure(level.keys))],
    ['without key, µs', ({ withoutKeys }) => withoutKeys],
    ['new key', ({ newKeys }) => newKeys],
    ['repeat', ({ repeats }) => repeats],
    ['scattered repeat', ({ scattered }) => scattered],
    ['at 30,000/s: behind, s', ({ atRate }) => atRate?.behindSeconds],
    ['runs', ({ newKeys }) => newKeys.length],
  ]);
  const note = `${keysNote} A key takes ${figure(keys.bytesPerKey)} bytes on disk.`;
  return [{ title: 'Idempotency keys', note, tables: [table] }];
}

const keysNote = `CPU per event in bulk requests of 500. Deployments stood side by side and took turns: one in which no key was ever forgotten,
and one for each number of keys in the index. While new keys came, the clock by which Redis forgets went 120 times as fast: they got into
the index every few seconds. At the end Redis had forgotten all of them, and their cost includes that. A repeat is an event whose
key Redis has forgotten and the index holds; it is not stored. Repeats come in the order of before; scattered repeats come from all over
what was sent before. Behind: ten seconds of new keys came at this rate (one run), with the clock as fast; this is how long after the
last was due all were stored.`;

function programSection({ backfill, producer }: Results): Section[] {
  type Row = FoundOf<'backfill'> & { readonly what: string; readonly producerBytes?: number };
  const rows: Row[] = [];
  if (backfill) rows.push({ what: 'flights by the import program', ...backfill });
  if (producer) rows.push({ what: 'events by the library for servers', ...producer });
  if (rows.length === 0) return [];
  const table = tableOf<Row>(rows, [
    ['', ({ what, events }) => `${figure(events)} ${what}`],
    ['acknowledged after, s', (run) => run.acknowledgedSeconds],
    ['stored after, s', (run) => run.storedSeconds],
    ['events/s', ({ events, storedSeconds }) => events / storedSeconds],
    ...processColumns<Row>(({ cpu }) => cpu, 'µs'),
    ['the program', (run) => run.programCpu],
    ['its memory, MB', ({ producerBytes }) => producerBytes && producerBytes / 1e6],
    ["others' share", (run) => run.othersShare],
    ['runs', () => 1],
  ]);
  return [{ title: 'Programs that send', note: 'Each is one process on the same machine.', tables: [table] }];
}

function serversSection(servers: FoundOf<'servers'>): Section[] {
  const levels = servers.ways.flatMap(({ name, levels: its }) => its.map((level) => ({ ...level, name })));
  const costs = tableOf(levels, [
    ['', ({ name, of }) => `${name}, ${of} of each`],
    ['CPU above idle, µs', (level) => costsAboveIdle(servers, level)],
    ...costColumns,
    ...lastColumns,
  ]);
  const idle = tableOf(servers.idle, [
    ['nothing sent', ({ of }) => `${of} of each`],
    ...processColumns<(typeof servers.idle)[number]>(({ cpu }) => cpu, 'ms a second'),
  ]);
  const note = `The same events at the same rate to deployments with one, two and three Redis masters and as many ClickHouse servers, which stood
side by side and took turns. All else is the same: ${servers.shards} shards, one API process, one worker, 60 environments without limits, and
ports instead of Unix sockets. At this rate each shard has few events for a commit and an insert, so an event costs more than in the
other scenarios. "Above idle" leaves out what the processes use while nothing is sent.`;
  return [{ title: 'Several Redis masters and ClickHouse servers', note, tables: [costs, idle] }];
}

function replicasSection({ rates, highestPerSecond, takeOversMs }: FoundOf<'replicas'>): Section[] {
  const levels = rates.flatMap(({ perSecond, levels: its }) =>
    its.map((level) => ({ ...level, name: `${perSecond} a second` })),
  );
  const costs = tableOf(levels, [
    ['', ({ name, of }) => `${name}, ${of} acknowledgements`],
    ...costColumns,
    ...lastColumns,
  ]);
  const highest =
    highestPerSecond === undefined
      ? ''
      : `
The one with two acknowledgements takes ${figure(highestPerSecond)} a second, as fast as it answers; the higher rates are two and four fifths of that.`;
  const note = `The same events at the same rates to three deployments, which stood side by side and took turns: with one Redis, and with a primary
and two replicas on the same machine, of which one or both have an event on disk before the answer. The CPU of all servers of Redis counts.${highest}
After ${takeOversMs.length} kills of the primary an event was accepted again within ${figure(median(takeOversMs))} ms (median), ${figure(Math.max(0, ...takeOversMs))} ms at most.`;
  return [{ title: 'Replicas of Redis', note, tables: [costs] }];
}
