// A user in all environments of an account: where data is held, under which names, how much, and since when. Each environment merges its
// own users, so a user_id may belong to a person in one environment and be unknown in another.

import { isoTime } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { namedUsers } from '../../clickhouse/named-users.js';
import { syncReplicas } from '../../clickhouse/replication.js';
import { storedTable } from '../../clickhouse/tables.js';
import type { AdministrationAnswers } from '../../contract/administration-answers.js';
import { readMerged } from '../../privacy/suppression/merged-names.js';
import type { User } from '../../privacy/suppression/names.js';
import { byServer } from '../../registry/shard-servers.js';
import { type FoundUser, lookUpUser } from './look-up.js';
import { asking, isNamed } from './merged-user.js';

/** What one environment holds about the user. */
export type Place = AdministrationAnswers['lookUpUserEverywhere']['places'][number];

/** The names under which a user is known in any of the environments: the given one, and the identities that a user_id was merged into. */
export async function namesEverywhere(
  clickhouse: ClickHouseClient,
  appIds: readonly string[],
  user: User,
): Promise<readonly User[]> {
  if (user.userId === undefined) return [user];
  const identities = new Set<string>();
  for (const [client, ofServer] of byServer(clickhouse, appIds))
    for (const { identity } of await readMerged(client, ofServer, [], [user.userId]))
      identities.add(identity);
  return [...[...identities].sort().map((identity) => ({ identity })), user];
}

/** Where data is held about the user who has these names, in the order of the environments. */
export async function lookUpEverywhere(
  clickhouse: ClickHouseClient,
  appIds: readonly string[],
  names: readonly User[],
): Promise<readonly Place[]> {
  const places: Place[] = [];
  for (const [client, ofServer] of byServer(clickhouse, appIds)) {
    for (const [appId, ofEnvironment] of await findNames(client, ofServer, names)) {
      const known = new Set<string>();
      for (const name of ofEnvironment) {
        const { found, properties, ...user } = await lookUpUser(client, appId, name);
        // A user_id that was merged into an identity here is the same user.
        const place = JSON.stringify([user.identity, user.identity === null ? user.user_ids : []]);
        if (!found || known.has(place)) continue;
        known.add(place);
        const counted = await countEvents(client, appId, user);
        places.push({ app_id: appId, ...user, properties: Object.keys(properties).length, ...counted });
      }
    }
  }
  return places.sort((a, b) => appIds.indexOf(a.app_id) - appIds.indexOf(b.app_id));
}

/**
 * The environments that may hold data, each with those of the names that its rows use. In each environment anybody may identify a user_id
 * as somebody else, so not every name is looked up in every environment.
 */
async function findNames(
  client: ClickHouseClient,
  appIds: readonly string[],
  names: readonly User[],
): Promise<ReadonlyMap<string, readonly User[]>> {
  const tables = (['events', 'user_properties'] as const).map(
    (table) =>
      `SELECT app_id, identity, user_id FROM ${storedTable(table)} WHERE app_id IN {appIds:Array(String)} AND ${isNamed}`,
  );
  const identifications = storedTable('user_identities');
  await syncReplicas(client, [identifications]);
  const merged = `SELECT app_id, identity, NULL FROM ${identifications}
    WHERE app_id IN {appIds:Array(String)} AND identity IN (SELECT identity FROM ${namedUsers} WHERE user_id IS NULL)`;
  const identities = names.flatMap(({ identity }) => identity ?? []);
  const userIds = names.flatMap(({ userId }) => userId ?? []);
  type Row = { app_id: string; identity: string; user_id: string | number | null };
  const rows = await asking(client, { identities, userIds })<Row>(
    `SELECT DISTINCT app_id, identity, user_id FROM (${[...tables, merged].join(' UNION ALL ')})`,
    { appIds },
  );
  const found = new Map<string, Set<string>>();
  for (const { app_id, identity, user_id } of rows) {
    const its = found.get(app_id) ?? new Set();
    found.set(app_id, its.add(`i${identity}`).add(`u${user_id}`));
  }
  const isIn = (its: ReadonlySet<string>, { identity, userId }: User) =>
    its.has(identity === undefined ? `u${userId}` : `i${identity}`);
  return new Map([...found].map(([appId, its]) => [appId, names.filter((name) => isIn(its, name))]));
}

async function countEvents(
  client: ClickHouseClient,
  appId: string,
  { identity, user_ids }: Pick<FoundUser, 'identity' | 'user_ids'>,
): Promise<Pick<Place, 'events' | 'first_seen' | 'last_seen'>> {
  const ask = asking(client, { identities: identity === null ? [] : [identity], userIds: user_ids });
  const [counted] = await ask<{ events: string | number; first_seen: string; last_seen: string }>(
    `SELECT count() AS events, ${isoTime('min(time)')} AS first_seen, ${isoTime('max(time)')} AS last_seen
      FROM ${storedTable('events')} WHERE app_id = {appId:String} AND ${isNamed}`,
    { appId },
  );
  const events = Number(counted?.events ?? 0);
  if (counted === undefined || events === 0) return { events, first_seen: null, last_seen: null };
  return { events, first_seen: counted.first_seen, last_seen: counted.last_seen };
}
