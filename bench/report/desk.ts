// The page's sections about the calls of a privacy officer and about suppressed users.

import type { PreviewRun } from '../desk/desk.js';
import type { ExportRun, Memory } from '../desk/export.js';
import { addedMicroseconds } from '../desk/suppressed.js';
import { figure, median, rangeText, tableOf } from '../figures.js';
import type { Results } from '../results.js';
import type { Section } from './section.js';

export function deskSections(desk: Results['desk']): Section[] {
  if (desk === undefined) return [];
  const { events, othersEvents, exports, submittedMs, previews, polledMs, suppressed } = desk;
  const size = `One user with ${figure(events)} events in a table with ${figure(othersEvents)} of others.`;
  const of = (gzip: boolean) => exports.filter((run) => run.gzip === gzip);
  type Row = { readonly runs: readonly ExportRun[] };
  const all = (value: (run: ExportRun) => number) => (row: Row) => median(row.runs.map(value));
  const memory = (which: 'apiMib' | 'clickhouseMib', when: keyof Memory) => all((run) => run[which][when]);
  const rows: Row[] = [false, true].map((gzip) => ({ runs: of(gzip) })).filter(({ runs }) => runs.length > 0);
  const how = ({ runs }: Row) => (runs[0]?.gzip ? 'with gzip' : 'without gzip');
  const times = tableOf(rows, [
    ['', how],
    ['first byte, s', all((run) => run.firstByteSeconds)],
    ['of the runs', ({ runs }) => rangeText(runs.map((run) => run.firstByteSeconds))],
    ['end, s', all((run) => run.seconds)],
    ['MB', all((run) => run.bytes / 1e6)],
    ['CPU of the API, s', all((run) => run.cpu.api)],
    ['of ClickHouse, s', all((run) => run.cpu.clickhouse)],
    ['runs', ({ runs }) => runs.length],
  ]);
  const memories = tableOf(rows, [
    ['memory, MiB', how],
    ['API before', memory('apiMib', 'before')],
    ['first half', memory('apiMib', 'firstHalf')],
    ['second half', memory('apiMib', 'secondHalf')],
    ['ClickHouse before', memory('clickhouseMib', 'before')],
    ['first half', memory('clickhouseMib', 'firstHalf')],
    ['second half', memory('clickhouseMib', 'secondHalf')],
    ['its queries', all((run) => run.queryMib)],
  ]);
  const calls = tableOf(
    [
      ...previews.map((run: PreviewRun) => ({
        what: `a preview: ${run.what} (${figure(run.users)}, ${figure(run.rows)} rows)`,
        ms: run.ms,
      })),
      { what: 'a deletion is submitted', ms: submittedMs },
      { what: 'a status is asked for', ms: polledMs },
    ],
    [
      ['', ({ what }) => what],
      ['median, ms', ({ ms }) => median(ms)],
      ['longest', ({ ms }) => Math.max(...ms)],
      ['calls', ({ ms }) => ms.length],
    ],
  );
  const costs = tableOf(
    [
      { what: 'alone', pairs: suppressed.alone },
      { what: 'in bulk of 500', pairs: suppressed.inBulk },
    ],
    [
      ['µs per event before its commit', ({ what }) => what],
      ['nobody suppressed', ({ pairs }) => median(pairs.map((pair) => pair.without))],
      [figure(suppressed.suppressed), ({ pairs }) => median(pairs.map((pair) => pair.with))],
      ['more', ({ pairs }) => addedMicroseconds(pairs)],
      ['pairs of runs', ({ pairs }) => pairs.length],
    ],
  );
  return [
    { title: 'An export of one user', note: `${size} ${exportNote}`, tables: [times, memories] },
    { title: 'Calls of a privacy officer', note: callsNote, tables: [calls] },
    { title: 'Suppressed users', note: suppressedNote, tables: [costs] },
  ];
}

const exportNote = `Times count from the request for the data. The bench reads as fast as the data comes, and unpacks it, on the
same machine. Memory is the highest resident memory in each half of the download; "its queries" is ClickHouse's count for the
download's queries.`;

const callsNote = `On the same tables, one after another, over HTTP.`;

const suppressedNote = `Events of users who are not suppressed. The bench itself runs the API's code that reads and prepares them, in pairs
of runs without and with suppressed users. All names are of different users.`;
