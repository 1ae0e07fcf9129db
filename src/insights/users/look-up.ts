// What is held about a user in one environment: names, properties, and for each event name how many events there are, and from when to
// when.

import { isoTime } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { storedTable } from '../../clickhouse/tables.js';
import type { AdministrationAnswers } from '../../contract/administration-answers.js';
import { userLookUps } from '../../contract/limits.js';
import type { User } from '../../privacy/suppression/names.js';
import { type Ask, findMergedUser, isNamed } from './merged-user.js';

type EventOfUser = AdministrationAnswers['countUserEvents']['events'][number];

export type FoundUser = Omit<AdministrationAnswers['lookUpUser'], 'app_id' | 'events' | 'suppression'>;

/**
 * What is held about the merged user that a name stands for, without events. Like the other functions of this file, rejects when ClickHouse
 * fails or takes too long.
 */
export async function lookUpUser(client: ClickHouseClient, appId: string, user: User): Promise<FoundUser> {
  const { identity, userIds, hasMore, ask } = await findMergedUser(client, appId, user);
  const hasEvents = await findEvent(ask, appId);
  const properties = await readProperties(ask, appId);
  // A user who was identified exists even without events and properties.
  const wasIdentified = identity !== undefined && userIds.length > 0;
  return {
    found: wasIdentified || hasEvents || properties.length > 0,
    identity: identity ?? null,
    user_ids: userIds,
    has_more_user_ids: hasMore,
    properties: Object.fromEntries(properties.map(({ key, value }) => [key, value])),
  };
}

async function findEvent(ask: Ask, appId: string): Promise<boolean> {
  const [found] = await ask(
    `SELECT 1 FROM ${storedTable('events')} WHERE app_id = {appId:String} AND ${isNamed} LIMIT 1`,
    { appId },
  );
  return found !== undefined;
}

/**
 * The events of the merged user by name, the most frequent first. ClickHouse reads each granule that has one of them as a whole, so this
 * takes seconds for a user who is in all granules of a large table.
 */
export async function countUserEvents(
  client: ClickHouseClient,
  appId: string,
  user: User,
): Promise<readonly EventOfUser[]> {
  const { ask } = await findMergedUser(client, appId, user);
  const rows = await ask<Omit<EventOfUser, 'count'> & { count: string | number }>(
    `SELECT event, count() AS count, ${isoTime('min(time)')} AS first_seen, ${isoTime('max(time)')} AS last_seen
      FROM ${storedTable('events')} WHERE app_id = {appId:String} AND ${isNamed}
      GROUP BY event ORDER BY count DESC, event LIMIT ${userLookUps.eventNamesMax}`,
    { appId },
  );
  return rows.map((row) => ({ ...row, count: Number(row.count) }));
}

/** The time from which the values of a setting call count, as in the view merged_user_properties. */
const propertiesSince =
  'if(time < received_at, least(toUInt64(toUnixTimestamp64Micro(time)), segment), segment)';

/** The latest value of each key, under any of the user's names. */
function readProperties(ask: Ask, appId: string): Promise<{ key: string; value: string }[]> {
  return ask(
    `SELECT key, argMax(value, (since, segment, commit_number, row_number)) AS value FROM (
        SELECT ${propertiesSince} AS since, segment, commit_number, row_number, properties
        FROM ${storedTable('user_properties')} WHERE app_id = {appId:String} AND ${isNamed}
      ) ARRAY JOIN mapKeys(properties) AS key, mapValues(properties) AS value
      GROUP BY key ORDER BY key LIMIT ${userLookUps.propertiesMax}`,
    { appId },
  );
}
