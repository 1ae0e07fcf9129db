// What ClickHouse has of a few users, for the demo page: their latest events and their rows in the view `users`. Each
// page asks once a second, so this reads only recent data and gives up soon.

import { demo } from '../contract/limits.js';
import { readRows } from './answers.js';
import type { ClickHouseClient } from './client.js';
import { storedTable } from './tables.js';

export type ArrivedQuery = {
  readonly appId: string;
  /** Decimal strings. */
  readonly userIds: readonly string[];
  readonly identities: readonly string[];
};

/** Columns and values of the tables; times are `YYYY-MM-DD hh:mm:ss.mmm` in UTC. */
export type Arrived = { readonly events: readonly object[]; readonly users: readonly object[] };

// The number of a segment is the microsecond of its opening, so parts with only older segments are not read.
const eventsQuery = `
SELECT event_id, event, toString(e.user_id) AS user_id, identity, session_id, time, received_at, properties
FROM ${storedTable('events')} AS e
WHERE app_id = {app_id: String}
  AND segment >= toUnixTimestamp64Micro(now64(6) - INTERVAL 1 DAY)
  AND (has({user_ids: Array(UInt64)}, e.user_id) OR has({identities: Array(String)}, e.identity))
ORDER BY segment DESC, commit_number DESC, row_number DESC
LIMIT ${demo.eventsMax}`;

const usersQuery = (view: string) => `
SELECT identity, arrayMap(id -> toString(id), u.user_ids) AS user_ids, email, properties
FROM ${view} AS u
WHERE app_id = {app_id: String}
  AND (hasAny(u.user_ids, {user_ids: Array(UInt64)}) OR has({identities: Array(String)}, u.identity))
ORDER BY u.identity, u.user_ids
LIMIT ${demo.usersMax}`;

/** Settles with the newest events first. `client`: the server of the environment. Rejects when it does not answer in time. */
export async function readArrived(
  client: ClickHouseClient,
  query: ArrivedQuery,
  isOneOfSeveral: boolean,
): Promise<Arrived> {
  const { appId, userIds, identities } = query;
  const ask = async (text: string) => {
    return readRows<object>(client, {
      query: text,
      query_params: { app_id: appId, user_ids: userIds.map(BigInt), identities },
      clickhouse_settings: { max_execution_time: demo.querySecondsMax },
    });
  };
  const [events, users] = await Promise.all([
    ask(eventsQuery),
    ask(usersQuery(isOneOfSeveral ? 'local_users' : 'users')),
  ]);
  return { events, users };
}
