// Lets ClickHouse itself generate events, stored as workers store them: in segments with markers.

import { columns } from '../../src/clickhouse/tables.js';
import type { Rows } from './stored.js';

/** SQL in which `number` counts the rows of an insert and `n` all events; `with` may define more names. */
export type MadeEvents = {
  /** The number of each row's segment. */
  readonly segment: string;
  readonly with?: readonly string[];
  readonly appId: string;
  readonly event: string;
  readonly userId?: string;
  readonly identity: string;
  readonly sessionId?: string;
  /** How long before its acceptance each event happened. */
  readonly msBefore?: string;
  readonly properties: string;
};

export const rowsPerInsert = 500_000;

/**
 * Makes the events from `first` up to `end`, in several inserts. Calls `made` with the number of the first event of each insert, and the
 * number of the insert. ClickHouse accepts these segments even if it refuses other segments of that time, as it does after a retention run.
 */
export async function insertEvents(
  { rows }: Rows,
  first: number,
  end: number,
  made: (from: number, insert: number) => MadeEvents,
): Promise<void> {
  for (let from = first, insert = 0; from < end; from += rowsPerInsert, insert += 1) {
    const count = Math.min(rowsPerInsert, end - from);
    const { segment, appId, event, userId = 'NULL', identity, properties, ...more } = made(from, insert);
    const { sessionId = "''", msBefore = '0' } = more;
    const names = [`toUInt64(${segment}) AS segment`, `number + ${from} AS n`, ...(more.with ?? [])];
    await rows(`INSERT INTO stored_events (${columns.events.join(', ')})
      WITH ${names.join(', ')}, fromUnixTimestamp64Micro(toInt64(segment + 10 * number), 'UTC') AS received_at
      SELECT ${appId}, generateUUIDv4(), ${event}, ${userId}, ${identity}, ${sessionId},
        received_at - toIntervalMillisecond(${msBefore}), ${properties},
        1 + number % 1000, segment, 1 + intDiv(number, 1000), received_at
      FROM numbers(${count})
      UNION ALL
      SELECT '', toUUID('00000000-0000-0000-0000-000000000000'), '', NULL, '', '', fromUnixTimestamp64Milli(0, 'UTC'),
        CAST(map(), 'Map(String, String)'), 0, marker, 0, fromUnixTimestamp64Milli(0, 'UTC')
      FROM (SELECT DISTINCT toUInt64(${segment}) AS marker FROM numbers(${count}))
      SETTINGS max_insert_threads = 1, max_threads = 1, max_block_size = ${2 * count},
        min_insert_block_size_rows = ${2 * count}, min_insert_block_size_bytes = 0,
        log_comment = 'store asked by the bench'`);
  }
}
