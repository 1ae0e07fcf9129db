// What ClickHouse has of a few users, for the demo page: their latest events, and what the view `users` says of
// them. Asked once a second by each page, so it reads what is recent only and gives up soon.

import type { ClickHouseClient } from './client.js';

export type ArrivedQuery = {
  readonly appId: string;
  /** Decimal strings. */
  readonly userIds: readonly string[];
  readonly identities: readonly string[];
};

/** Names and values as the tables have them; times are `YYYY-MM-DD hh:mm:ss.mmm` in UTC. */
export type Arrived = { readonly events: readonly object[]; readonly users: readonly object[] };

const eventsMax = 30;
const usersMax = 20;
const secondsMax = 3;

// Segments are numbered by the microsecond of their opening: parts that hold older ones only are not read.
const eventsQuery = `
SELECT event_id, event, toString(e.user_id) AS user_id, identity, session_id, time, received_at, properties
FROM events AS e
WHERE app_id = {app_id: String}
  AND segment >= toUnixTimestamp64Micro(now64(6) - INTERVAL 1 DAY)
  AND (has({user_ids: Array(UInt64)}, e.user_id) OR has({identities: Array(String)}, e.identity))
ORDER BY segment DESC, commit_number DESC, row_number DESC
LIMIT ${eventsMax}`;

const usersQuery = `
SELECT identity, arrayMap(id -> toString(id), u.user_ids) AS user_ids, email, properties
FROM users AS u
WHERE app_id = {app_id: String}
  AND (hasAny(u.user_ids, {user_ids: Array(UInt64)}) OR has({identities: Array(String)}, u.identity))
ORDER BY u.identity, u.user_ids
LIMIT ${usersMax}`;

/** Settles with the newest events first. Rejects when ClickHouse is away, or too busy to answer in time. */
export async function readArrived(client: ClickHouseClient, query: ArrivedQuery): Promise<Arrived> {
  const { appId, userIds, identities } = query;
  const ask = async (text: string) => {
    const result = await client.query({
      query: text,
      query_params: { app_id: appId, user_ids: userIds.map(BigInt), identities },
      clickhouse_settings: { max_execution_time: secondsMax },
      format: 'JSONEachRow',
    });
    return result.json<object>();
  };
  const [events, users] = await Promise.all([ask(eventsQuery), ask(usersQuery)]);
  return { events, users };
}
