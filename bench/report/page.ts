// The page of a session: what was measured and how, the targets, and a section for each scenario with its plot and table.

import { figure, markdownTable } from '../figures.js';
import { describeInWords } from '../machine.js';
import { plotFile, type Results } from '../results.js';
import { bulkNames, plotsOf, singleNames } from './plots.js';
import {
  connectionsTable,
  flatEnvironmentsTable,
  flatTable,
  keysTable,
  latencyTable,
  segmentTable,
  soakTable,
  type Table,
  targetTable,
  wayTable,
} from './tables.js';

export type Page = { readonly markdown: string; readonly plots: Readonly<Record<string, string>> };

/** `path` is that of the page, without the extension; its plots are named after it. */
export async function makePage(results: Results, path: string): Promise<Page> {
  const plots = await plotsOf(results);
  const parts = [
    '# Bench',
    `Written by \`npm run bench -- ${results.command}\` in ${figure(results.seconds / 60)} min. ${describeInWords(results.machine)}`,
    results.failures.length > 0 ? failed(results) : checked,
    ...repeated(results),
  ];
  const table = ({ head, rows }: Table) => markdownTable(head, rows);
  const plot = (name: string, alternative: string) =>
    plots[name] === undefined ? [] : [`![${alternative}](${plotFile(path, name)})`];
  const targets = targetTable(results);
  if (targets.rows.length > 0) parts.push('## Targets', targetNote, table(targets));
  if (results.ways.length > 0) {
    const shown = new Set([...singleNames, ...bulkNames]);
    const others = results.ways.filter(({ name }) => !shown.has(name));
    const named = (names: readonly string[]) =>
      names.flatMap((name) => results.ways.find((way) => way.name === name) ?? []);
    const [singles, bulks] = [named(singleNames), named(bulkNames)];
    parts.push('## Highest rates, and the cost of a record', costNote);
    parts.push(...plot('cost-single', 'CPU of a single event by process'));
    if (singles.length > 0) parts.push(table(wayTable(singles)));
    parts.push(...plot('cost-bulk', 'CPU of an event in bulk by process'));
    if (bulks.length > 0) parts.push(table(wayTable(bulks)));
    if (others.length > 0) parts.push('Other requests:', table(wayTable(others)), ...mixture(results));
    if (results.ways.some(({ subject }) => subject !== 'sluice')) parts.push(comparedWith);
  }
  if (results.connections !== undefined) {
    parts.push(
      '## Events that share a commit',
      connectionsText(results.connections),
      table(connectionsTable(results)),
    );
  }
  if (results.latencies.length > 0) {
    parts.push(
      '## Latency',
      latencyNote,
      ...plot('latency', 'Acknowledgement by percentile'),
      table(latencyTable(results)),
    );
  }
  if (results.segments !== undefined) {
    const { events, redisBytesPerEvent } = results.segments;
    parts.push(
      '## A backlog in Redis',
      `${segmentNote} Redis allocated ${figure(redisBytesPerEvent)} bytes more an event of ${figure(events)}, all told.`,
    );
    parts.push(...plot('segments', 'Memory of sealed segments'), table(segmentTable(results)));
  }
  if (results.backlog !== undefined)
    parts.push(
      '## Draining a backlog',
      backlogText(results.backlog),
      ...plot('backlog', 'The backlog over time'),
    );
  if (results.flat !== undefined)
    parts.push(
      '## Flat',
      flatNote,
      ...plot('flat', 'CPU of an event by what is stored'),
      table(flatTable(results)),
      table(flatEnvironmentsTable(results)),
    );
  if (results.keys !== undefined)
    parts.push(
      '## Idempotency keys',
      `${keysNote} To add a key to the index and to forget it takes ${figure(results.keys.addMicroseconds)} µs, and it has ${figure(results.keys.bytesPerKey)} bytes of disk.`,
      table(keysTable(results)),
    );
  if (results.soak !== undefined)
    parts.push(
      ...soak(results, plot),
      ...(results.soak.samples.length > 0 ? [table(soakTable(results))] : []),
    );
  if (results.backfill !== undefined) parts.push('## Backfill', backfillText(results.backfill));
  if (results.producer !== undefined) parts.push('## Producer', producerText(results.producer));
  if (results.deletionBeside !== undefined)
    parts.push('## A deletion beside ingestion', deletionText(results.deletionBeside));
  return { markdown: `${parts.join('\n\n')}\n`, plots };
}

const keysNote = `Bulk requests of 500 events with keys, CPU of all processes but the generator: before a key was ever forgotten, and with
more and more keys in the index. A repeat is an event whose key Redis has forgotten and the index has; it is not stored.`;

const checked = `After every run exactly the acknowledged records were stored, each event under an id of its own; a session in
which one is missing, doubled or refused fails.`;

function failed({ failures }: Results): string {
  return [
    '**This session failed:**',
    ...failures.map(({ scenario, message }) => `- ${scenario}: ${message}`),
  ].join('\n');
}

function repeated({ repeated: again = [] }: Results): string[] {
  if (again.length === 0) return [];
  return [
    [
      'Failed in the session, and ran again after it:',
      ...again.map(({ scenario, message, date }) => `- ${scenario}, ${date.slice(0, 16)}: ${message}`),
    ].join('\n'),
  ];
}

const targetNote = `Ratios within this session: of CPU, summed over all processes but the load generator, and of medians.
Beside them stands from the least to the most that single runs would give; a target whose bound lies in between is undecided.
An acknowledgement counts from when its request was due.`;

const costNote = `Medians of the runs. CPU is in µs a record, user and system, counted until everything was stored; merges that
ClickHouse makes later are not in it. The load generator runs on the same cores and takes its CPU from the
service, so rates are lower than they would be without it. The CPU of a record depends on it less.
"Others' share" is the part of the machine's CPU time that other programs used meanwhile: the more of it, the
noisier.`;

const comparedWith = `Floors: uWebSockets.js reads the body and answers \`{}\`; with a synced file it appends the body to a file first, and
what came meanwhile shares an fdatasync. ClickHouse gets the same rows in blocks as large as those of
bulk-500, by the inserts that a worker makes, through its HTTP server; its CPU counts. By the native protocol another
ClickHouse has read the rows and sends columns. Redis gets the same bytes by APPEND, as many commands at a time as a commit has requests,
its file synced before every answer.

Peers, sent the very same bodies: Fastify checks with its schema, limits single events by INCR, claims keys by SET NX and
adds one BullMQ job an event, from which a worker inserts up to 1000 rows at a time. node:http gathers events for
50 ms, inserts them and answers then; it has no limits and no keys. Both store into a plain table whose inserts are
not synced.`;

function connectionsText({ generator: { name, version } }: NonNullable<Results['connections']>): string {
  const cost =
    name === 'wrk'
      ? 'which leaves nearly all of the machine to the service'
      : 'since wrk was not installed; it takes as much CPU as the service, which makes every ratio smaller';
  return `One event a request, as fast as they are answered, sent by ${name} ${version},
${cost}.
Each connection has one request under way: the more of them, the more events share a commit. Each level took turns with
uWebSockets.js alone, which got the same bodies from the same generator. CPU is in µs an event, in user mode and of the
kernel, medians of the runs; that of a commit is all that the process used, by commits.`;
}

const latencyNote = `One event a request, sent when due whether or not earlier ones were answered. "Acknowledged" counts from the
write of a request, or from when it was due if no connection was free then; "since due" also counts what the
generator itself was late. "Queryable" counts from a probe's acknowledgement to the answer of ClickHouse that
first shows it. Two floors stand beside the service: a server that only answers, and one that appends the bodies to a file
and answers after \`fdatasync\`, with nobody else on the machine: what the disk makes of any acknowledgement that is
kept.`;

const segmentNote = `Segments as they are sealed while ClickHouse is away: single events at 500 to 5000 a second, and bulk loads that
fill segments. Memory is what MEMORY USAGE says, bytes of rows are STRLEN.`;

const flatNote = `The same load on an emptier and a fuller table, and spread over few and many environments; medians of the runs.
These are minutes apart, in which a shared machine may become half faster or slower. So each run on the fuller table
takes turns with one on a reference: a second deployment on the same machine, with as many events as the first level.
Environments are compared by how many times an event costs what its request costs the generator, which never changes.`;

function mixture({ ways }: Results): string[] {
  const run = ways.find(({ name }) => name === 'mixed')?.runs[0];
  if (run?.limited === undefined) return [];
  return [
    `Of the mixture's ${figure(run.requests)} requests ${figure(run.limited)} were answered 429 and ${figure(run.repeats)} were repeats; its figures are by stored event.`,
  ];
}

function backlogText(result: NonNullable<Results['backlog']>): string {
  const {
    events,
    segments,
    redisBytesPerEvent,
    ratePerSecond,
    drainSeconds,
    drainedPerSecond,
    cpu,
    latency,
  } = result;
  const used = Object.entries(cpu).map(([name, microseconds]) => `${name} ${figure(microseconds)}`);
  return `${figure(events)} events in ${figure(segments)} segments waited, ${figure(redisBytesPerEvent)} bytes of Redis each. While
${figure(ratePerSecond)} more came a second, all were stored after ${figure(drainSeconds)} s: ${figure(drainedPerSecond)} a second. CPU in µs an event: ${used.join(', ')}.
Acknowledgements meanwhile: p50 ${figure(latency.acknowledgedMs.p50)}, p99 ${figure(latency.acknowledgedMs.p99)}, max ${figure(latency.acknowledgedMs.max)} ms.`;
}

function soak({ soak: found }: Results, plot: (name: string, alternative: string) => string[]): string[] {
  if (found === undefined) return [];
  const { minutes, ratePerSecond, events, latency } = found;
  const { p50, p99, max } = latency.acknowledgedMs;
  return [
    '## Soak',
    `${figure(ratePerSecond)} events a second for ${minutes} min, ${figure(events)} in all. Acknowledged: p50 ${figure(p50)}, p99 ${figure(p99)}, max ${figure(max)} ms.`,
    ...plot('soak', 'Memory of each process over time'),
  ];
}

function backfillText(result: NonNullable<Results['backfill']>): string {
  const {
    events,
    storedSeconds,
    acknowledgedSeconds,
    eventsPerRequest,
    keys,
    repeats,
    cpu,
    generatorCpu,
    origins,
    delayMinutes,
  } = result;
  const used = Object.entries(cpu).map(([name, microseconds]) => `${name} ${figure(microseconds)}`);
  const costs =
    used.length === 0 ? '' : ` CPU in µs an event: ${used.join(', ')}; generator ${figure(generatorCpu)}.`;
  return `${figure(events)} flights, ${eventsPerRequest} a request${keys ? ', with keys' : ''}: acknowledged after ${figure(acknowledgedSeconds)} s, stored after ${figure(storedSeconds)} s,
${figure(events / storedSeconds)} a second.${costs} ${repeats} requests had to be sent again. ClickHouse and the file agree on the flights
and delays of all ${origins} origins, ${delayMinutes.toLocaleString('en-US')} minutes in all.`;
}

function producerText(result: NonNullable<Results['producer']>): string {
  const { events, acknowledgedSeconds, storedSeconds, cpu, producerCpu, producerBytes } = result;
  const used = Object.entries(cpu).map(([name, microseconds]) => `${name} ${figure(microseconds)}`);
  return `${figure(events)} events by the library for servers from one process: ${figure(events / acknowledgedSeconds)} a second acknowledged,
${figure(events / storedSeconds)} a second stored. CPU in µs an event: ${[...used, `producer ${figure(producerCpu)}`].join(', ')}. It held ${figure(producerBytes / 1e6)} MB at most.`;
}

function deletionText(result: NonNullable<Results['deletionBeside']>): string {
  const { events, ratePerSecond, before, meanwhile, run } = result;
  const ms = ({ acknowledgedSinceDueMs: { p50, p99, max } }: typeof before) =>
    `p50 ${figure(p50)}, p99 ${figure(p99)}, max ${figure(max)} ms`;
  return `${figure(run.targets)} users with ${figure(run.rows)} of ${figure(events)} rows, deleted while ${figure(ratePerSecond)} events a second came: complete after
${figure(run.completeSeconds)} s. Acknowledgements before: ${ms(before)}; meanwhile: ${ms(meanwhile)}.`;
}
