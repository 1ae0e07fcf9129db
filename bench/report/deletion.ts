// The page's sections about deletions.

import type { BulkRun, ManyRun, OneRun } from '../deletion/runs.js';
import { figure, tableOf } from '../figures.js';
import type { Results } from '../results.js';
import type { Section } from './section.js';

export function deletionSections(deletion: Results['deletion']): Section[] {
  if (deletion === undefined) return [];
  const { one, many } = deletion;
  return [...bulkSection(deletion), ...(one ? [oneSection(one)] : []), ...(many ? [manySection(many)] : [])];
}

type Deletion = NonNullable<Results['deletion']>;

function bulkSection({ events, customers, bulk = [], beside }: Deletion): Section[] {
  const rows: { readonly how: string; readonly runs: readonly BulkRun[] }[] = [
    { how: 'idle', runs: bulk },
    { how: `beside ${figure(beside?.ratePerSecond)} events a second`, runs: beside?.runs ?? [] },
  ].filter(({ runs }) => runs.length > 0);
  if (rows.length === 0) return [];
  const table = tableOf(rows, [
    ['', ({ how }) => how],
    ['users', ({ runs }) => runs.map((run) => run.targets)],
    ['rows', ({ runs }) => runs.map((run) => run.rows)],
    ['answered, s', ({ runs }) => runs.map((run) => run.answeredSeconds), 'lower'],
    ['complete', ({ runs }) => runs.map((run) => run.completeSeconds), 'lower'],
    ['parts gone', ({ runs }) => runs.map((run) => run.partsGoneSeconds), 'lower'],
    ['file rewritten', ({ runs }) => runs.map((run) => run.redisRewrittenSeconds), 'lower'],
    ['CPU, s', ({ runs }) => runs.map((run) => run.cpu.seconds), 'lower'],
    ["others' share", ({ runs }) => runs.map((run) => run.cpu.othersShare)],
    ['runs', ({ runs }) => runs.length],
  ]);
  const moments =
    beside === undefined ? [] : Object.entries({ before: beside.beforeMs, meanwhile: beside.meanwhileMs });
  const latencies = tableOf(moments, [
    ['acknowledged, ms since due', ([when]) => when],
    ['p50', ([, runs]) => runs.map(({ p50 }) => p50), 'lower'],
    ['p99', ([, runs]) => runs.map(({ p99 }) => p99), 'lower'],
    ['max', ([, runs]) => runs.map(({ max }) => max)],
    ['runs', ([, runs]) => runs.length],
  ]);
  const note = `${figure(events)} events of ${figure(customers)} users. ${bulkNote}`;
  const tables = beside === undefined ? [table] : [table, latencies];
  return [{ title: 'A deletion of one percent of the users', note, tables }];
}

const bulkNote = `Times count from the submission until the polled status is \`complete\`. After every run the bench compared the
tables: no row of the targets was left, and the count and hash of all other rows were as before. "CPU" is that of the deployment's
processes until \`complete\`. "Parts gone" and "file rewritten" count from \`complete\` until a search through all files of
ClickHouse, and of Redis, no longer found one target's identity; before, both held it. The search itself takes a second or more.
The acknowledgements are those of single events, for ten seconds before the submission, and from it to \`complete\`.`;

function oneSection(one: NonNullable<Deletion['one']>): Section {
  const rows: { readonly what: string; readonly runs: readonly OneRun[] }[] = one.flatMap(
    ({ events, everywhere, inOnePart }) => [
      { what: `${figure(events / 1e6)} million, in many parts`, runs: everywhere },
      { what: `${figure(events / 1e6)} million, in one part`, runs: inOnePart },
    ],
  );
  const table = tableOf(rows, [
    ['', ({ what }) => what],
    ['complete, s', ({ runs }) => runs.map((run) => run.completeSeconds), 'lower'],
    ['parts', ({ runs }) => runs.map((run) => run.parts)],
    ['parts written', ({ runs }) => runs.map((run) => run.partsRewritten)],
    ['rows written', ({ runs }) => runs.map((run) => run.rowsRewritten), 'lower'],
    ['CPU, s', ({ runs }) => runs.map((run) => run.cpu.seconds), 'lower'],
    ["others' share", ({ runs }) => runs.map((run) => run.cpu.othersShare)],
    ['runs', ({ runs }) => runs.length],
  ]);
  const note = `"In many parts": the user's ten events lie months apart; "in one part": one insert has them all. ClickHouse checks a part
without rows of the user and hard-links its files instead of writing them.`;
  return { title: 'A deletion of one user', note, tables: [table] };
}

function manySection(many: ManyRun): Section {
  const table = tableOf(
    [many],
    [
      ['', ({ requests }) => `${figure(requests)} requests`],
      ['submitted within, s', (run) => run.submittedSeconds],
      ['all complete after', (run) => run.completeSeconds, 'lower'],
      ['one after, median', (run) => run.medianSeconds, 'lower'],
      ['the longest', (run) => run.longestSeconds, 'lower'],
      [
        'mutations of a table within a minute, at most',
        (run) => Math.max(...Object.values(run.mutationsAMinute)),
      ],
      ['runs', () => 1],
    ],
  );
  return {
    title: 'Requests of one user each',
    note: 'Submitted evenly, one after another.',
    tables: [table],
  };
}
