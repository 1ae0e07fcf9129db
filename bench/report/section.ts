// A section of a session's page. The terminal shows its tables.

import type { Table } from '../figures.js';

export type Section = {
  readonly title: string;
  readonly note: string;
  /** Each plot's name, and its text for readers who do not see it. */
  readonly plots?: readonly (readonly [name: string, shows: string])[];
  readonly tables: readonly Table[];
};
