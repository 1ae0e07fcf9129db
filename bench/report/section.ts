// A section of a session's page, of which the terminal shows the tables.

import type { Table } from '../figures.js';

export type Section = {
  readonly title: string;
  readonly note: string;
  /** Names of plots, and what each shows. */
  readonly plots?: readonly (readonly [name: string, shows: string])[];
  readonly tables?: readonly Table[];
  /** After the tables. */
  readonly end?: string;
};
