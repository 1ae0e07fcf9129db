// The page's sections about the requests of a privacy officer and about suppressed users.

import type { ExportRun } from '../desk/export.js';
import type { RetentionRun } from '../desk/retention.js';
import { figure, tableOf } from '../figures.js';
import type { FoundOf } from '../results.js';
import { each, runsColumn, type Section } from './section.js';
import { addedBySuppressed } from './targets.js';

export function deskSections(desk: FoundOf<'desk'>): Section[] {
  const { events, othersEvents, exports, submittedMs, previews, polledMs, suppressed, retention = [] } = desk;
  const downloads = tableOf(
    grouped(exports, ({ gzip }) => (gzip ? 'with gzip' : 'without gzip')),
    [
      ['', ({ what }) => what],
      each<ExportRun>('first byte, s', (run) => run.firstByteSeconds, 'lower'),
      each<ExportRun>('end, s', (run) => run.seconds, 'lower'),
      each<ExportRun>('MB', (run) => run.bytes / 1e6),
      each<ExportRun>('CPU of the API, s', (run) => run.cpu.api, 'lower'),
      each<ExportRun>('of ClickHouse, s', (run) => run.cpu.clickhouse, 'lower'),
      each<ExportRun>('memory of the API before, MiB', (run) => run.apiMib.before),
      each<ExportRun>('the most during it', (run) => run.apiMib.most, 'lower'),
      runsColumn,
    ],
  );
  const previewed = previews.map(({ what, users, rows, ms }) => ({
    what: `a preview: ${what} (${figure(users)}, ${figure(rows)} rows)`,
    ms,
  }));
  const submitted = { what: 'a deletion is submitted', ms: submittedMs };
  const calls = tableOf(
    [...previewed, submitted, { what: 'a status is asked for', ms: polledMs }],
    [
      ['', ({ what }) => what],
      ['ms', ({ ms }) => ms, 'lower'],
      ['calls', ({ ms }) => ms.length],
    ],
  );
  const pairs = [
    { what: 'alone', runs: suppressed.alone },
    { what: 'in bulk of 500', runs: suppressed.inBulk },
  ];
  const costs = tableOf(pairs, [
    ['µs per event before its commit', ({ what }) => what],
    each('nobody suppressed', (pair) => pair.without, 'lower'),
    each(figure(suppressed.suppressed), (pair) => pair.with, 'lower'),
    ['more', ({ runs }) => addedBySuppressed(runs), 'lower'],
    ['pairs of runs', ({ runs }) => runs.length],
  ]);
  const besides = ({ beside }: RetentionRun) =>
    beside > 0 ? `with ${figure(beside)} events of others` : 'of nobody else';
  const expired = tableOf(grouped(retention, besides), [
    ['a month', ({ what }) => what],
    each<RetentionRun>('expired events', ({ rows }) => rows),
    each<RetentionRun>('s per million', ({ rows, seconds }) => (seconds / rows) * 1e6, 'lower'),
    each<RetentionRun>('CPU, s per million', ({ rows, cpu }) => (cpu / rows) * 1e6, 'lower'),
    runsColumn,
  ]);
  const size = `One user with ${figure(events)} events in a table with ${figure(othersEvents)} of others.`;
  const callsNote = 'On the same tables, one after another, over HTTP.';
  return [
    { title: 'An export of one user', note: `${size} ${exportNote}`, tables: [downloads] },
    { title: 'Calls of a privacy officer', note: callsNote, tables: [calls] },
    ...(retention.length > 0 ? [{ title: 'Expired events', note: expiredNote, tables: [expired] }] : []),
    { title: 'Suppressed users', note: suppressedNote, tables: [costs] },
  ];
}

/** The runs of each kind, in the order in which the kinds occur. */
function grouped<Run>(runs: readonly Run[], kindOf: (run: Run) => string) {
  const kinds = [...new Set(runs.map(kindOf))];
  return kinds.map((what) => ({ what, runs: runs.filter((run) => kindOf(run) === what) }));
}

const exportNote = `Times count from the request for the data. The bench reads as fast as the data comes, and unpacks it, on the
same machine.`;

const expiredNote = `On the same tables, of an environment that retains 30 days. If nobody else has events in the month, its whole
partition is dropped; otherwise the expired events are deleted and the others stay. The keys of all of them stay in the index, which is a
part of the cost. CPU is that of the deployment and of the worker's code, which the bench itself runs.`;

const suppressedNote = `Events of users who are not suppressed. The bench itself runs the API's code that reads and prepares them, in pairs
of runs without and with suppressed users.`;
