// The page's sections about the calls of a privacy officer and about suppressed users.

import type { RetentionRun } from '../desk/retention.js';
import { figure, tableOf } from '../figures.js';
import type { Results } from '../results.js';
import type { Section } from './section.js';
import { addedBySuppressed } from './targets.js';

export function deskSections(desk: Results['desk']): Section[] {
  if (desk === undefined) return [];
  const { events, othersEvents, exports, submittedMs, previews, polledMs, suppressed, retention = [] } = desk;
  const rows = [false, true].map((gzip) => exports.filter((run) => run.gzip === gzip));
  const downloads = tableOf(
    rows.filter((runs) => runs.length > 0),
    [
      ['', ([run]) => (run?.gzip ? 'with gzip' : 'without gzip')],
      ['first byte, s', (runs) => runs.map((run) => run.firstByteSeconds), 'lower'],
      ['end, s', (runs) => runs.map((run) => run.seconds), 'lower'],
      ['MB', (runs) => runs.map((run) => run.bytes / 1e6)],
      ['CPU of the API, s', (runs) => runs.map((run) => run.cpu.api), 'lower'],
      ['of ClickHouse, s', (runs) => runs.map((run) => run.cpu.clickhouse), 'lower'],
      ['memory of the API before, MiB', (runs) => runs.map((run) => run.apiMib.before)],
      ['the most during it', (runs) => runs.map((run) => run.apiMib.most), 'lower'],
      ['runs', (runs) => runs.length],
    ],
  );
  const calls = tableOf(
    [
      ...previews.map(({ what, users, rows: found, ms }) => ({
        what: `a preview: ${what} (${figure(users)}, ${figure(found)} rows)`,
        ms,
      })),
      { what: 'a deletion is submitted', ms: submittedMs },
      { what: 'a status is asked for', ms: polledMs },
    ],
    [
      ['', ({ what }) => what],
      ['ms', ({ ms }) => ms, 'lower'],
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
      ['nobody suppressed', ({ pairs }) => pairs.map((pair) => pair.without), 'lower'],
      [figure(suppressed.suppressed), ({ pairs }) => pairs.map((pair) => pair.with), 'lower'],
      ['more', ({ pairs }) => addedBySuppressed(pairs), 'lower'],
      ['pairs of runs', ({ pairs }) => pairs.length],
    ],
  );
  const months = [true, false].map((alone) => retention.filter(({ beside }) => (beside === 0) === alone));
  const millions = ({ rows: deleted }: RetentionRun) => deleted / 1e6;
  const over = tableOf(
    months.filter((runs) => runs.length > 0),
    [
      [
        'a month',
        ([run]) => (run?.beside ? `with ${figure(run.beside)} events of others` : 'of nobody else'),
      ],
      ['events over', (runs) => runs.map(({ rows: deleted }) => deleted)],
      ['s per million', (runs) => runs.map((run) => run.seconds / millions(run)), 'lower'],
      ['CPU, s per million', (runs) => runs.map((run) => run.cpu / millions(run)), 'lower'],
      ['runs', (runs) => runs.length],
    ],
  );
  const size = `One user with ${figure(events)} events in a table with ${figure(othersEvents)} of others.`;
  return [
    { title: 'An export of one user', note: `${size} ${exportNote}`, tables: [downloads] },
    {
      title: 'Calls of a privacy officer',
      note: 'On the same tables, one after another, over HTTP.',
      tables: [calls],
    },
    ...(retention.length > 0 ? [{ title: 'Events that are over', note: overNote, tables: [over] }] : []),
    { title: 'Suppressed users', note: suppressedNote, tables: [costs] },
  ];
}

const exportNote = `Times count from the request for the data. The bench reads as fast as the data comes, and unpacks it, on the
same machine.`;

const overNote = `On the same tables, of an environment that retains 30 days. Of a month in which nobody else has events the whole
partition is dropped; otherwise the events are deleted from beside the others. The keys of all of them stay in the index, which is a part
of the cost. CPU is that of the deployment and of the worker's code, which the bench itself runs.`;

const suppressedNote = `Events of users who are not suppressed. The bench itself runs the API's code that reads and prepares them, in pairs
of runs without and with suppressed users.`;
