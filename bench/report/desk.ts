// The page's sections about the calls of a privacy officer and about suppressed users.

import { figure, tableOf } from '../figures.js';
import type { Results } from '../results.js';
import type { Section } from './section.js';
import { addedBySuppressed } from './targets.js';

export function deskSections(desk: Results['desk']): Section[] {
  if (desk === undefined) return [];
  const { events, othersEvents, exports, submittedMs, previews, polledMs, suppressed } = desk;
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
  const size = `One user with ${figure(events)} events in a table with ${figure(othersEvents)} of others.`;
  return [
    { title: 'An export of one user', note: `${size} ${exportNote}`, tables: [downloads] },
    {
      title: 'Calls of a privacy officer',
      note: 'On the same tables, one after another, over HTTP.',
      tables: [calls],
    },
    { title: 'Suppressed users', note: suppressedNote, tables: [costs] },
  ];
}

const exportNote = `Times count from the request for the data. The bench reads as fast as the data comes, and unpacks it, on the
same machine.`;

const suppressedNote = `Events of users who are not suppressed. The bench itself runs the API's code that reads and prepares them, in pairs
of runs without and with suppressed users.`;
