// Which events an environment has sent recently, how often, and what their properties look like. Reads the event names of the period and a
// sample of the properties; no value leaves ClickHouse.

import { isoTime, readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { storedTable } from '../../clickhouse/tables.js';
import type { AdministrationAnswers } from '../../contract/administration-answers.js';
import { eventNames } from '../../contract/limits.js';

type EventName = AdministrationAnswers['listEventNames'][number];

type EventProperty = AdministrationAnswers['listEventProperties'][number];

/** The events that were accepted in the last days, the most frequent first. */
export async function listEventNames(
  client: ClickHouseClient,
  appId: string,
  days: number,
): Promise<readonly EventName[]> {
  return readRows<EventName>(client, {
    query: `SELECT event, toFloat64(count()) AS count, ${takenAt('min')} AS first_seen, ${takenAt('max')} AS last_seen
      FROM ${storedTable('events')} WHERE app_id = {appId:String} AND ${isSince}
      GROUP BY event ORDER BY count DESC, event LIMIT ${eventNames.listedMax}`,
    query_params: { appId, days },
    clickhouse_settings: {
      max_execution_time: eventNames.querySecondsMax,
      // The rows of an environment are sorted by their events, so this needs no hash tables.
      optimize_aggregation_in_order: 1,
    },
  });
}

/**
 * The properties of events with one name that were accepted in the last days, the most frequent first. Reads only a sample of these events.
 */
export async function listEventProperties(
  client: ClickHouseClient,
  appId: string,
  event: string,
  days: number,
): Promise<readonly EventProperty[]> {
  return readRows<EventProperty>(client, {
    query: `SELECT property, toUInt32(count()) AS count, toUInt32(countIf(kind = 'number')) AS number,
        toUInt32(countIf(kind = 'boolean')) AS boolean, toUInt32(countIf(kind = 'time')) AS time,
        toUInt32(countIf(kind = 'text')) AS text
      FROM (
        SELECT property, multiIf(
          match(value, '^-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?$'), 'number',
          value IN ('true', 'false'), 'boolean',
          match(value, '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[-+][0-9:]+)?)?$'), 'time',
          'text') AS kind
        FROM (
          SELECT properties FROM ${storedTable('events')}
          WHERE app_id = {appId:String} AND event = {event:String} AND ${isSince} LIMIT ${eventNames.sampledMax}
        ) ARRAY JOIN mapKeys(properties) AS property, mapValues(properties) AS value
      ) GROUP BY property ORDER BY count DESC, property LIMIT ${eventNames.listedMax}`,
    query_params: { appId, event, days },
    clickhouse_settings: { max_execution_time: eventNames.querySecondsMax },
  });
}

/**
 * When the first or the last event was accepted: the time at which its segment was opened. The time that senders give would be one more
 * column to read.
 */
function takenAt(which: 'min' | 'max'): string {
  return isoTime(`toDateTime64(fromUnixTimestamp64Micro(toInt64(${which}(segment))), 3)`);
}

/** A segment's number is the time of its opening in microseconds. The index `by_segment` skips older segments. */
const isSince = 'segment >= toUnixTimestamp64Micro(now64(6) - toIntervalDay({days:UInt32}))';
