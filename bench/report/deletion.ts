// The page's sections about deletions.

import type { OneResult } from '../deletion/deletions.js';
import type { BulkRun, ManyRun, OneRun } from '../deletion/runs.js';
import { figure, median, rangeText, tableOf } from '../figures.js';
import type { Results } from '../results.js';
import type { Section } from './section.js';

export function deletionSections(deletion: Results['deletion']): Section[] {
  if (deletion === undefined) return [];
  const { events, customers, one, bulk, beside, many } = deletion;
  const size = `${figure(events)} events of ${figure(customers)} users.`;
  return [
    ...(bulk || beside ? [bulkSection(size, bulk ?? [], beside)] : []),
    ...(one ? [oneSection(one)] : []),
    ...(many ? [manySection(many)] : []),
  ];
}

const checks = `Times count from the submission until the polled status is \`complete\`. After every run the bench compared the
tables: no row of the targets was left, and the count and hash of all other rows were as before. "CPU" is the CPU of the
deployment's processes until \`complete\`. "Others' share" is the share of the machine's CPU time that other programs used: the
higher it is, the longer the times.`;

const bulkNote = `Seconds. "Parts gone" and "file rewritten" count from \`complete\` until a search through all files of ClickHouse, and of
Redis, no longer found one target's identity; before, both held it. The search itself takes a second or more.`;

const besideNote = `Under ingestion: latency of single events since due, in the seconds before and from the submission to
\`complete\`.`;

function bulkSection(
  size: string,
  bulk: readonly BulkRun[],
  beside: NonNullable<Results['deletion']>['beside'],
): Section {
  type Row = { readonly how: string; readonly runs: readonly BulkRun[] };
  const rows: Row[] = [
    { how: 'idle', runs: bulk },
    { how: `beside ${figure(beside?.ratePerSecond)} events per second`, runs: beside?.runs ?? [] },
  ].filter(({ runs }) => runs.length > 0);
  const of = (value: (run: BulkRun) => number) => (row: Row) => median(row.runs.map(value));
  const table = tableOf(rows, [
    ['', ({ how }) => how],
    ['users', of((run) => run.targets)],
    ['rows', of((run) => run.rows)],
    ['answered', of((run) => run.answeredSeconds)],
    ['complete', of((run) => run.completeSeconds)],
    ['of the runs', ({ runs }) => rangeText(runs.map((run) => run.completeSeconds))],
    ['parts gone', of((run) => run.partsGoneSeconds)],
    ['file rewritten', of((run) => run.redisRewrittenSeconds)],
    ['CPU, s', of((run) => run.cpu.seconds)],
    ["others' share", of((run) => run.cpu.othersShare)],
    ['runs', ({ runs }) => runs.length],
  ]);
  const latencies = tableOf(beside === undefined ? [] : (['beforeMs', 'meanwhileMs'] as const), [
    ['since due, ms', (when) => (when === 'beforeMs' ? 'before' : 'meanwhile')],
    ['p50', (when) => median((beside?.[when] ?? []).map(({ p50 }) => p50))],
    ['p99', (when) => median((beside?.[when] ?? []).map(({ p99 }) => p99))],
    ['p99 of the runs', (when) => (beside?.[when] ?? []).map(({ p99 }) => figure(p99)).join(' ')],
    ['max', (when) => Math.max(...(beside?.[when] ?? []).map(({ max }) => max))],
  ]);
  const steps = rows.flatMap(({ how, runs }) => {
    const words = Object.entries(runs[0]?.rounds[0] ?? {}).map(([name, ms]) => `${name} ${ms}`);
    return words.length === 0 ? [] : [`Steps of the first run ${how}, ms: ${words.join(', ')}.`];
  });
  return {
    title: 'A deletion of one percent of the users',
    note: [size, checks, bulkNote, ...(beside ? [besideNote] : [])].join('\n'),
    tables: latencies.rows.length === 0 ? [table] : [table, latencies],
    end: steps.join('\n\n'),
  };
}

const oneNote = `Medians. "In many parts": the user's ten events lie months apart; "in one part": one insert has them all. ClickHouse
checks a part without rows of the user and hard-links its files instead of writing them. "Parts written" counts the parts whose
largest column file has a new inode. Steps are in ms, from the worker's log: "count" counts the rows to delete per request,
"check and write" is the mutation, "verify" counts what is left.`;

function oneSection(one: readonly OneResult[]): Section {
  type Row = { readonly what: string; readonly runs: readonly OneRun[] };
  const rows = one.flatMap(({ events, everywhere, inOnePart }): Row[] => [
    { what: `${figure(events / 1e6)} million, in many parts`, runs: everywhere },
    { what: `${figure(events / 1e6)} million, in one part`, runs: inOnePart },
  ]);
  const of = (value: (run: OneRun) => number) => (row: Row) => median(row.runs.map(value));
  const step = (name: string) => of((run) => run.steps[name] ?? Number.NaN);
  const parts = (row: Row) => `${of((run) => run.partsRewritten)(row)} of ${of((run) => run.parts)(row)}`;
  const table = tableOf(rows, [
    ['', ({ what }) => what],
    ['complete, s', of((run) => run.completeSeconds)],
    ['of the runs', ({ runs }) => rangeText(runs.map((run) => run.completeSeconds))],
    ['parts written', parts],
    ['rows written', of((run) => run.rowsRewritten)],
    ['prepare', step('prepare')],
    ['resolve', step('resolve')],
    ['count', step('count')],
    ['check and write', step('stored_events')],
    ['verify', step('verify')],
    ['purge, complete', step('complete')],
    ['CPU, s', of((run) => run.cpu.seconds)],
    ["others' share", of((run) => run.cpu.othersShare)],
    ['runs', ({ runs }) => runs.length],
  ]);
  const shows = "Time and rows written of one user's deletion, by stored events";
  return { title: 'A deletion of one user', note: oneNote, plots: [['one', shows]], tables: [table] };
}

function manySection(many: ManyRun): Section {
  const mutations = tableOf(Object.entries(many.mutations), [
    ['mutations', ([table]) => table],
    ['all', ([, count]) => count],
    ['the most within a minute', ([table]) => many.mutationsAMinute[table] ?? 0],
  ]);
  const { requests, submittedSeconds, completeSeconds, medianSeconds, longestSeconds, rounds } = many;
  return {
    title: 'Requests of one user each',
    note: `${figure(requests)} requests, one after another, submitted evenly within ${figure(submittedSeconds)} s: all complete after ${figure(completeSeconds)} s,
one after ${figure(medianSeconds)} s (median), the longest after ${figure(longestSeconds)}; in ${figure(rounds.length)} rounds.`,
    tables: [mutations],
  };
}
