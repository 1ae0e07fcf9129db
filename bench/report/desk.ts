// The page's sections about the requests of a privacy officer and about suppressed users.

import type { ExportRun } from '../desk/export.js';
import { figure, tableOf } from '../figures.js';
import type { FoundOf } from '../results.js';
import { each, type Section, tableOfRuns } from './section.js';
import { addedBySuppressed } from './targets.js';

export function deskSections(desk: FoundOf<'desk'>): Section[] {
  const { events, othersEvents, exports, submittedMs, previews, polledMs, suppressed } = desk;
  const byGzip = [false, true].map((gzip) => {
    const runs = exports.filter((run) => run.gzip === gzip);
    return [gzip ? 'with gzip' : 'without gzip', runs] as const;
  });
  const downloads = tableOfRuns<ExportRun>('', byGzip, [
    each('first byte, s', (run) => run.firstByteSeconds),
    each('end, s', (run) => run.seconds),
    each('MB', (run) => run.bytes / 1e6),
    each('CPU of the API, s', (run) => run.cpu.api),
    each('of ClickHouse, s', (run) => run.cpu.clickhouse),
    each('memory of the API before, MiB', (run) => run.apiMib.before),
    each('the most during it', (run) => run.apiMib.most),
  ]);
  const previewed = previews.map(({ what, users, rows, ms }) => ({
    what: `a preview: ${what} (${figure(users)}, ${figure(rows)} rows)`,
    ms,
  }));
  const submitted = { what: 'a deletion is submitted', ms: submittedMs };
  const calls = tableOf(
    [...previewed, submitted, { what: 'a status is asked for', ms: polledMs }],
    [
      ['', ({ what }) => what],
      ['ms', ({ ms }) => ms],
      ['calls', ({ ms }) => ms.length],
    ],
  );
  const pairs = [
    { what: 'alone', runs: suppressed.alone },
    { what: 'in bulk of 500', runs: suppressed.inBulk },
  ];
  const costs = tableOf(pairs, [
    ['µs per event before its commit', ({ what }) => what],
    each('nobody suppressed', (pair) => pair.without),
    each(figure(suppressed.suppressed), (pair) => pair.with),
    ['more', ({ runs }) => addedBySuppressed(runs)],
    ['pairs of runs', ({ runs }) => runs.length],
  ]);
  const size = `One user with ${figure(events)} events in a table with ${figure(othersEvents)} of others.`;
  const callsNote = 'On the same tables, one after another, over HTTP.';
  return [
    { title: 'An export of one user', note: `${size} ${exportNote}`, tables: [downloads] },
    { title: 'Calls of a privacy officer', note: callsNote, tables: [calls] },
    { title: 'Suppressed users', note: suppressedNote, tables: [costs] },
  ];
}

const exportNote = `Times count from the request for the data. The bench reads as fast as the data comes, and unpacks it, on the
same machine.`;

const suppressedNote = `Events of users who are not suppressed. The bench itself runs the API's code that reads and prepares them, in pairs
of runs without and with suppressed users.`;
