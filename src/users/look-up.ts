// What is held about a user in one environment: names, properties, and which events how often, from when to when.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { isoTime } from '../clickhouse/iso-time.js';
import { storedTable } from '../clickhouse/tables.js';
import { userLookUps } from '../contract/limits.js';
import type { User } from '../suppression/names.js';
import { type Ask, findMergedUser, isNamed, withNames } from './merged-user.js';

export type EventOfUser = {
  readonly event: string;
  readonly count: number;
  readonly first_seen: string;
  readonly last_seen: string;
};

export type FoundUser = {
  readonly found: boolean;
  /** Null for an anonymous user. */
  readonly identity: string | null;
  readonly user_ids: readonly string[];
  readonly has_more_user_ids: boolean;
  readonly properties: Readonly<Record<string, string>>;
  /** The most frequent first. */
  readonly events: readonly EventOfUser[];
};

/** What is held about the merged user that a name means. Rejects when ClickHouse fails or takes too long. */
export async function lookUpUser(client: ClickHouseClient, appId: string, user: User): Promise<FoundUser> {
  const { identity, userIds, hasMore } = await findMergedUser(client, appId, user);
  const identities = identity === undefined ? [] : [identity];
  const { events, properties } = await withNames(client, identities, userIds, async (ask) => ({
    events: await countEvents(ask, appId),
    properties: await readProperties(ask, appId),
  }));
  // An identified user has such a row; a name alone has none.
  const wasIdentified = identity !== undefined && userIds.length > 0;
  return {
    found: wasIdentified || events.length > 0 || properties.length > 0,
    identity: identity ?? null,
    user_ids: userIds,
    has_more_user_ids: hasMore,
    properties: Object.fromEntries(properties.map(({ key, value }) => [key, value])),
    events,
  };
}

async function countEvents(ask: Ask, appId: string): Promise<EventOfUser[]> {
  const rows = await ask<Omit<EventOfUser, 'count'> & { count: string | number }>(
    `SELECT event, count() AS count, ${isoTime('min(time)')} AS first_seen, ${isoTime('max(time)')} AS last_seen
      FROM ${storedTable('events')} WHERE app_id = {appId:String} AND ${isNamed}
      GROUP BY event ORDER BY count DESC, event LIMIT ${userLookUps.eventNamesMax}`,
    { appId },
  );
  return rows.map((row) => ({ ...row, count: Number(row.count) }));
}

/** The latest value of each key, under any of the user's names. */
function readProperties(ask: Ask, appId: string): Promise<{ key: string; value: string }[]> {
  return ask(
    `SELECT key, argMax(value, (segment, commit_number, row_number)) AS value FROM (
        SELECT segment, commit_number, row_number, properties
        FROM ${storedTable('user_properties')} WHERE app_id = {appId:String} AND ${isNamed}
      ) ARRAY JOIN mapKeys(properties) AS key, mapValues(properties) AS value
      GROUP BY key ORDER BY key LIMIT ${userLookUps.propertiesMax}`,
    { appId },
  );
}
