// Finds the other users that are suppressed along with those that a submission names: the whole merged user, as for a deletion. Within an
// environment, an identity includes all user_ids whose first identification was by it; a user_id includes its identity and the other
// user_ids of that identity.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { askInPieces, namedUsers } from '../../clickhouse/named-users.js';
import { syncReplicas } from '../../clickhouse/replication.js';
import { storedTable } from '../../clickhouse/tables.js';
import { suppressions as bounds } from '../../contract/limits.js';
import type { Suppressed } from './change.js';
import { inEnvironment, type NameHasher, type User } from './names.js';

/**
 * Yields the names that are merged with these users in any of the environments, each with the name of the submitted user as its root.
 * Yields some at a time, since millions may have been identified as one identity.
 */
export async function* findMergedNames(
  client: ClickHouseClient,
  appIds: readonly string[],
  users: readonly User[],
  hasher: NameHasher,
): AsyncGenerator<Suppressed[]> {
  const identities = new Set(users.flatMap(({ identity }) => identity ?? []));
  const userIds = new Set(users.flatMap(({ userId }) => userId ?? []));
  /** By environment and identity: the named user_ids that have this identity, as roots. */
  const rootsOf = new Map<string, string[]>();
  const placeOf = (appId: string, identity: string) => `${appId} ${identity}`;

  for await (const rows of readMergedInPieces(client, appIds, [...identities], [...userIds])) {
    const found: Suppressed[] = [];
    for (const { app_id, user_id, identity } of rows) {
      if (identities.has(identity))
        found.push([inEnvironment(hasher.textOf({ userId: user_id }), app_id), hasher.textOf({ identity })]);
      if (!userIds.has(user_id)) continue;
      const root = hasher.textOf({ userId: user_id });
      found.push([inEnvironment(hasher.textOf({ identity }), app_id), root]);
      const place = placeOf(app_id, identity);
      const roots = rootsOf.get(place) ?? [];
      // One root suffices to free a name, so a few are enough: ten thousand user_ids of one identity would make a hundred million pairs.
      if (roots.length < bounds.rootsPerNameMax) rootsOf.set(place, [...roots, root]);
    }
    yield found;
  }
  if (rootsOf.size === 0) return;
  const linked = new Set([...rootsOf.keys()].map((place) => place.slice(place.indexOf(' ') + 1)));
  for await (const rows of readMergedInPieces(client, appIds, [...linked], [])) {
    yield rows.flatMap(({ app_id, user_id, identity }) => {
      const name = inEnvironment(hasher.textOf({ userId: user_id }), app_id);
      return (rootsOf.get(placeOf(app_id, identity)) ?? []).map((root): Suppressed => [name, root]);
    });
  }
}

type Merged = { readonly app_id: string; readonly user_id: string; readonly identity: string };

/**
 * The user_ids that were ever identified by these identities, and these user_ids, each with its first identity, which is the one that
 * counts. `countMax`: returns only this many of those whose identity is one of these, by ascending user_id.
 */
export async function readMerged(...asked: Parameters<typeof readMergedInPieces>): Promise<Merged[]> {
  const all: Merged[] = [];
  for await (const rows of readMergedInPieces(...asked)) all.push(...rows);
  return all;
}

async function* readMergedInPieces(
  client: ClickHouseClient,
  appIds: readonly string[],
  identities: readonly string[],
  userIds: readonly string[],
  countMax?: number,
): AsyncGenerator<Merged[]> {
  const identifications = storedTable('user_identities');
  await syncReplicas(client, [identifications]);
  yield* askInPieces<Merged>(
    client,
    { identities, userIds },
    // With the alias, since ClickHouse takes the bare name for the text column that the query selects.
    `SELECT app_id, toString(i.user_id) AS user_id, argMin(i.identity, (segment, commit_number, row_number)) AS identity
      FROM ${identifications} AS i WHERE app_id IN ({appIds:Array(String)}) AND i.user_id IN (
        SELECT user_id FROM ${identifications} WHERE app_id IN ({appIds:Array(String)})
          AND identity IN (SELECT identity FROM ${namedUsers} WHERE user_id IS NULL)
        UNION ALL SELECT assumeNotNull(user_id) FROM ${namedUsers} WHERE user_id IS NOT NULL
      ) GROUP BY app_id, i.user_id ${countMax === undefined ? '' : firstOfThem}`,
    { params: { appIds, ...(countMax === undefined ? {} : { countMax }) } },
  );
}

const firstOfThem = `HAVING identity IN (SELECT identity FROM ${namedUsers} WHERE user_id IS NULL)
  ORDER BY toUInt64(user_id) LIMIT {countMax:UInt32}`;
