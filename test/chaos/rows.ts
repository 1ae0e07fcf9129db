// Reads everything that an environment has stored in one form: events, user properties, identifications, and failed rows.

import { type StoredEvent, storedEventsQuery } from '../harness/exactly-once.js';
import type { SluiceHandle } from '../harness/services.js';

/** What a look during the round found of users who had to be gone by then (sights.ts). */
export type Sight = {
  readonly kind: 'shown though hidden' | 'left on the disk';
  readonly appId: string;
  readonly rows: readonly StoredEvent[];
  /** The requests whose users had to be gone. */
  readonly requestIds: ReadonlySet<string>;
};

const times = 'toString(toUnixTimestamp64Milli(received_at)) AS received_ms';

/** `masked`: also reads rows that are masked but not erased yet, which no caller's query shows. */
export async function readStored(
  sluice: SluiceHandle,
  appId: string,
  masked = false,
): Promise<StoredEvent[]> {
  const rows = <Row>(sql: string) =>
    sluice.rows<Row>(masked ? `${sql} SETTINGS apply_deleted_mask = 0` : sql);
  const events = await rows<StoredEvent>(storedEventsQuery(appId));
  const properties = await rows<StoredEvent>(
    `SELECT 'user_properties' AS kind, if(user_id IS NULL, NULL, toString(user_id)) AS user_id, identity, properties,
      ${times} FROM user_properties WHERE app_id = '${appId}'`,
  );
  const identities = await rows<StoredEvent>(
    `SELECT 'identify' AS kind, toString(user_id) AS user_id, identity, ${times},
      map('marker', concat(toString(user_id), ' is ', identity)) AS properties
      FROM user_identities WHERE app_id = '${appId}'`,
  );
  const failed = await rows<{ row: string }>(
    `SELECT row FROM failed_events WHERE app_id = '${appId}' AND table_name = 'events'`,
  );
  return [...events, ...properties, ...identities, ...failed.map(({ row }) => eventOfRow(row))];
}

/** Reads a failed row, which has the columns of the events table in their order. */
function eventOfRow(row: string): StoredEvent {
  const [, id, event, userId, identity, session, time, properties, , , , received] = JSON.parse(
    row,
  ) as unknown[];
  const receivedMs = msOf(String(received));
  return {
    event_id: String(id),
    event: String(event),
    user_id: userId === null ? null : String(userId),
    identity: String(identity),
    session_id: String(session),
    time_ms: time === null ? receivedMs : msOf(String(time)),
    received_ms: receivedMs,
    properties: Object.fromEntries(
      Object.entries(properties as Record<string, unknown>).map(([key, value]) => [key, String(value)]),
    ),
  };
}

/** Milliseconds since 1970, from seconds with three decimals or a date. */
function msOf(text: string): string {
  return /^\d+\.\d{3}$/.test(text) ? text.replace('.', '') : String(Date.parse(`${text.replace(' ', 'T')}Z`));
}
