// A section of a session's page. The terminal shows its tables.

import { type Column, type Table, tableOf } from '../figures.js';

export type Section = {
  readonly title: string;
  readonly note: string;
  /** The name of each plot, and a text for readers who cannot see it. */
  readonly plots?: readonly (readonly [name: string, shows: string])[];
  readonly tables: readonly Table[];
};

/** What `make` returns for a result; an empty list without a result. */
export function ifFound<Found, Made>(found: Found | undefined, make: (found: Found) => readonly Made[]) {
  return found === undefined ? [] : make(found);
}

type HasRuns<Run> = { readonly runs: readonly Run[] };

/** A column with a figure of each run. */
export function each<Run>(name: string, value: (run: Run) => number | undefined): Column<HasRuns<Run>> {
  return [name, ({ runs }) => runs.map(value)];
}

export const runsColumn: Column<HasRuns<unknown>> = ['runs', ({ runs }) => runs.length];

/** A table with a row for each list of runs that is not empty; its last column is their number. */
export function tableOfRuns<Run>(
  title: string,
  rows: readonly (readonly [what: string, runs: readonly Run[]])[],
  columns: readonly Column<HasRuns<Run>>[],
): Table {
  const measured = rows.filter(([, runs]) => runs.length > 0).map(([what, runs]) => ({ what, runs }));
  return tableOf(measured, [[title, ({ what }) => what], ...columns, runsColumn]);
}
