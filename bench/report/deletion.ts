// The page's sections about deletions.

import type { BulkRun, ManyRun, OneRun } from '../deletion/runs.js';
import { sumCpu } from '../deployment/meter.js';
import { type Column, figure, tableOf } from '../figures.js';
import type { Spread } from '../load/histogram.js';
import type { FoundOf } from '../results.js';
import { each, ifFound, type Section, tableOfRuns } from './section.js';

type Deletion = FoundOf<'deletion'>;

export function deletionSections(deletion: Deletion): Section[] {
  const { one, many, bulk, beside } = deletion;
  return [
    ...ifFound(bulk ?? beside, () => [bulkSection(deletion)]),
    ...ifFound(one, oneSection),
    ...ifFound(many, manySection),
  ];
}

const cpuColumns = [
  each<BulkRun | OneRun>('CPU, s', ({ cpu }) => cpu.seconds),
  each<BulkRun | OneRun>("others' share", ({ cpu }) => cpu.othersShare),
];

function bulkSection({ events, customers, bulk = [], beside }: Deletion): Section {
  const besideWhat = `beside ${figure(beside?.ratePerSecond)} events a second`;
  const rows = [['idle', bulk] as const, [besideWhat, beside?.runs ?? []] as const];
  const table = tableOfRuns<BulkRun>('', rows, [
    each('users', (run) => run.targets),
    each('rows', (run) => run.rows),
    each('answered, s', (run) => run.answeredSeconds),
    each('complete', (run) => run.completeSeconds),
    each('parts gone', (run) => run.partsGoneSeconds),
    each('file rewritten', (run) => run.redisRewrittenSeconds),
    ...cpuColumns,
  ]);
  const latencies = ifFound(beside, ({ beforeMs, meanwhileMs }) => {
    const moments = [['before', beforeMs] as const, ['meanwhile', meanwhileMs] as const];
    const columns = [
      each<Spread>('p50', ({ p50 }) => p50),
      each<Spread>('p99', ({ p99 }) => p99),
      each<Spread>('max', ({ max }) => max),
    ];
    return [tableOfRuns('acknowledged, ms since due', moments, columns)];
  });
  const note = `${figure(events)} events of ${figure(customers)} users. ${bulkNote}`;
  return { title: 'A deletion of one percent of the users', note, tables: [table, ...latencies] };
}

const bulkNote = `Times count from the submission until the polled status is \`complete\`. After every run the bench compared the
tables: no row of the targets was left, and the count and hash of all other rows were as before. "CPU" is that of the deployment's
processes until \`complete\`. "Parts gone" and "file rewritten" count from \`complete\` until a search through all files of
ClickHouse, and of Redis, no longer found one target's identity; before, both held it. The search itself takes a second or more.
The acknowledgements are those of single events, for ten seconds before the submission, and from it to \`complete\`.`;

function oneSection(one: NonNullable<Deletion['one']>): Section[] {
  const rows = one.flatMap(({ events, everywhere, inOnePart }) => [
    [`${figure(events / 1e6)} million, in many parts`, everywhere] as const,
    [`${figure(events / 1e6)} million, in one part`, inOnePart] as const,
  ]);
  const table = tableOfRuns<OneRun>('', rows, [
    each('hidden, s', (run) => run.hiddenSeconds),
    each('complete, s', (run) => run.completeSeconds),
    each('parts', (run) => run.parts),
    each('parts written', (run) => run.partsRewritten),
    each('MB written', (run) => run.bytesWritten / 1e6),
    ...cpuColumns,
  ]);
  const note = `"In many parts": the user's ten events lie months apart; "in one part": one insert has them all. ClickHouse checks a part
without rows of the user and hard-links its files instead of writing them.`;
  return [{ title: 'A deletion of one user', note, tables: [table] }];
}

export function streamSection({ ratePerSecond, minutes, runs }: FoundOf<'stream'>): Section[] {
  const alone = sumCpu(runs.find(({ usersOfRequest }) => usersOfRequest === 0)?.cores ?? {});
  const requestsOf = (users: number) => (users === 0 ? 'no requests' : `requests of ${users}`);
  const table = tableOf(runs, [
    ['', (run) => `${figure(run.events / 1e6)} million, ${requestsOf(run.usersOfRequest)}`],
    ['requests', (run) => run.requests],
    ['hidden after, ms, p50', (run) => run.hiddenMs?.p50],
    ['p99', (run) => run.hiddenMs?.p99],
    ['cores for requests', (run) => sumCpu(run.cores) - alone],
    ['the table rewritten, times', (run) => run.rewrittenTimes],
    ['acknowledged, ms since due, p50', (run) => run.acknowledgedMs.p50],
    ['p99', (run) => run.acknowledgedMs.p99],
    ['parts at the end', (run) => run.parts],
    ['mutations undone', (run) => run.mutationsUndone],
    ["others' share", (run) => run.othersShare],
    ['runs', () => 1],
  ]);
  const note = `${figure(ratePerSecond)} events a second came in beside so many stored ones, for ${minutes} minutes each: alone, and beside a request every
ten seconds. "Cores for requests" is what all processes took beyond the run without requests. "Rewritten" is what mutations read, by
what the table holds. What erasing may use in advance in small tables was used up before. At the end no query showed a row of the
named users.`;
  return [{ title: 'A stream of requests', note, tables: [table] }];
}

function manySection(many: ManyRun): Section[] {
  const mutations = 'mutations of a table within a minute, at most';
  const columns: Column<ManyRun>[] = [
    ['', ({ requests }) => `${figure(requests)} requests`],
    ['submitted within, s', (run) => run.submittedSeconds],
    ['all complete after', (run) => run.completeSeconds],
    ['one after, median', (run) => run.medianSeconds],
    ['the longest', (run) => run.longestSeconds],
    [mutations, (run) => Math.max(...Object.values(run.mutationsAMinute))],
    ['runs', () => 1],
  ];
  const note = 'Submitted evenly, one after another.';
  return [{ title: 'Requests of one user each', note, tables: [tableOf([many], columns)] }];
}
