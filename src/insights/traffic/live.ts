// A sample of the events that are arriving in an environment, read back from ClickHouse. Nothing is stored for it, and events cost no more
// while a page watches. A page asks every two seconds for what came since its last request. The first request leaves a line in the audit
// log and returns a signed place, which every later request needs, so nobody can watch without that line.

import { createHmac } from 'node:crypto';
import { isoTime, readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { storedTable } from '../../clickhouse/tables.js';
import type { AdministrationAnswers } from '../../contract/administration-answers.js';
import { live } from '../../contract/limits.js';
import { areEqual } from '../../registry/secrets.js';

export type LivePage = AdministrationAnswers['showLive'];

/** Signs a place for its environment. It is valid until `untilMs`. */
export function signPlace(secret: string, appId: string, segment: string, untilMs: number): string {
  const text = `${segment}.${untilMs}`;
  return `${text}.${signatureOf(secret, appId, text)}`;
}

export type Place = { readonly segment: string; readonly untilMs: number };

/** The content of a signed place; undefined if it is not genuine, belongs to another environment, or has expired. */
export function readPlace(secret: string, appId: string, place: string, nowMs: number): Place | undefined {
  const [segment = '', until = '', signature = ''] = place.split('.');
  if (!/^\d{1,20}$/.test(segment) || !/^\d{1,15}$/.test(until)) return undefined;
  if (!areEqual(signature, signatureOf(secret, appId, `${segment}.${until}`))) return undefined;
  return Number(until) > nowMs ? { segment, untilMs: Number(until) } : undefined;
}

function signatureOf(secret: string, appId: string, text: string): string {
  return createHmac('sha256', secret).update(`live ${appId} ${text}`).digest('base64url');
}

/** Events in segments after this one. Misses a segment that is stored later than a newer one, since this is only a sample. */
export async function readArrivedSince(
  client: ClickHouseClient,
  appId: string,
  segment: string,
): Promise<{ readonly events: LivePage['events']; readonly arrived: number; readonly segment: string }> {
  const ask = <Row>(query: string, more = {}) =>
    readRows<Row>(client, {
      query,
      query_params: { appId, segment, ...more },
      clickhouse_settings: { max_execution_time: live.querySecondsMax },
    });
  const where = 'WHERE app_id = {appId:String} AND segment > {segment:UInt64}';
  const stamps = '(segment, commit_number, row_number)';
  const latestFirst = 'ORDER BY segment DESC, commit_number DESC, row_number DESC';
  const [newest] = await ask<{ arrived: number; latest: string }>(
    `SELECT toFloat64(count()) AS arrived, toString(max(segment)) AS latest FROM ${storedTable('events')} ${where}`,
  );
  if (newest === undefined || newest.arrived === 0) return { events: [], arrived: 0, segment };
  // The properties of these events only. What is stored meanwhile comes with the next request.
  const counted = `${where} AND segment <= {latest:UInt64}`;
  const events = await ask<LivePage['events'][number]>(
    `SELECT event_id, event, toString(e.user_id) AS user_id, identity, properties,
        ${isoTime('e.received_at')} AS received_at
      FROM (
        SELECT * FROM ${storedTable('events')} ${counted} AND ${stamps} IN (
          SELECT segment, commit_number, row_number FROM ${storedTable('events')} ${counted}
            ${latestFirst} LIMIT ${live.eventsPerPage}
        )
      ) AS e
      ${latestFirst}`,
    { latest: newest.latest },
  );
  return { events, arrived: newest.arrived, segment: newest.latest };
}
