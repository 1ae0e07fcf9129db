// The events of a user in one environment, the latest first, in pages.

import { isoTime } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { storedTable } from '../../clickhouse/tables.js';
import type { AdministrationAnswers } from '../../contract/administration-answers.js';
import { userLookUps } from '../../contract/limits.js';
import type { User } from '../../privacy/suppression/names.js';
import { type Ask, findMergedUser, isNamed } from './merged-user.js';

export type TimeLine = Omit<AdministrationAnswers['readUserEvents'], 'app_id'>;

/** Where a page ended: its last time in milliseconds, and the place in the order of acceptance. */
const cursorForm = /^-?\d{1,15} \d{1,20} \d{1,10} \d{1,10}$/;

/** The position that a page's `cursor` stands for; undefined if the text is not a cursor. */
export function readCursor(cursor: string): string | undefined {
  const text = Buffer.from(cursor, 'base64url').toString('latin1');
  return cursorForm.test(text) ? text : undefined;
}

/** A page of a user's events: all of them, or those with one name. `after`: the result of `readCursor`. */
export async function readTimeLine(
  client: ClickHouseClient,
  appId: string,
  user: User,
  { event, after }: { readonly event?: string | undefined; readonly after?: string | undefined },
): Promise<TimeLine> {
  const { ask } = await findMergedUser(client, appId, user);
  const { eventsPerPage, timeLineDays } = userLookUps;
  const latestMs = after === undefined ? Date.now() : Number(after.slice(0, after.indexOf(' ')));
  // A user who is in all granules has a page of events within a few days, and the table is also sorted by time.
  const lately = await readLatest(ask, appId, { event, after, sinceMs: latestMs - timeLineDays * dayMs });
  const rows = lately.length > eventsPerPage ? lately : await readLatest(ask, appId, { event, after });
  const last = rows.length > eventsPerPage ? rows[eventsPerPage - 1] : undefined;
  return {
    events: rows.slice(0, eventsPerPage).map(({ place: _, ...shown }) => shown),
    ...(last === undefined ? {} : { cursor: Buffer.from(last.place, 'latin1').toString('base64url') }),
  };
}

const dayMs = 24 * 60 * 60 * 1000;

type Wanted = {
  readonly event: string | undefined;
  readonly after: string | undefined;
  readonly sinceMs?: number;
};

/**
 * The events of a page and one more. ClickHouse finds them by their times and stamps, and reads only their properties: it materializes
 * other columns after a `LIMIT` if the query has no subquery around it.
 */
function readLatest(ask: Ask, appId: string, { event, after, sinceMs }: Wanted) {
  const place = '(toUnixTimestamp64Milli(e.time), segment, commit_number, row_number)';
  const [ms, segment, commit, row] = after?.split(' ') ?? [];
  return ask<TimeLine['events'][number] & { place: string }>(
    `SELECT event_id, event, toString(e.user_id) AS user_id, identity, session_id, properties,
        ${isoTime('e.time')} AS time, ${isoTime('e.received_at')} AS received_at,
        concat(toString(toUnixTimestamp64Milli(e.time)), ' ', toString(segment), ' ', toString(commit_number), ' ', toString(row_number)) AS place
      FROM ${storedTable('events')} AS e WHERE app_id = {appId:String} AND ${isNamed}
        ${sinceMs === undefined ? '' : 'AND e.time >= fromUnixTimestamp64Milli({sinceMs:Int64})'}
        ${event === undefined ? '' : 'AND event = {event:String}'}
        ${after === undefined ? '' : `AND ${place} < ({ms:Int64}, {segment:UInt64}, {commit:UInt32}, {row:UInt32})`}
      ORDER BY e.time DESC, segment DESC, commit_number DESC, row_number DESC LIMIT ${userLookUps.eventsPerPage + 1}
      SETTINGS prefer_column_name_to_alias = 1`,
    {
      appId,
      ...(sinceMs === undefined ? {} : { sinceMs }),
      ...(event === undefined ? {} : { event }),
      ...(after === undefined ? {} : { ms, segment, commit, row }),
    },
  );
}
