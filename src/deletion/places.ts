// Every table of ClickHouse that holds a user, in the order in which deletion empties them: what the merged
// user was resolved from comes last, or a crash in between would forget who is meant.

import { storedTable } from '../clickhouse/tables.js';

export const placesInOrder = [
  storedTable('events'),
  storedTable('user_properties'),
  'failed_events',
  storedTable('user_identities'),
] as const;

export type Place = (typeof placesInOrder)[number];

/** Tables with a user column that hold targets, not users' data; they are emptied apart. */
export const targetTable = 'deletion_targets';
