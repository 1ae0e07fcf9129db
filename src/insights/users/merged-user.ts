// The merged user that a name stands for in one environment: its identity and all of its user_ids, as in the view `users`.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { askAbout, type NamedUsers, namedUsers } from '../../clickhouse/named-users.js';
import { userLookUps } from '../../contract/limits.js';
import { readMerged } from '../../privacy/suppression/merged-names.js';
import type { User } from '../../privacy/suppression/names.js';

export type MergedUser = {
  /** Undefined for an anonymous user. */
  readonly identity: string | undefined;
  /** In decimal digits, ascending; at most as many as a look-up returns. */
  readonly userIds: readonly string[];
  /** Whether the user has more user_ids. */
  readonly hasMore: boolean;
  /** Asks about the rows under these names. */
  readonly ask: Ask;
};

/** The user that a name stands for. A name without an identification stands for itself. */
export async function findMergedUser(
  client: ClickHouseClient,
  appId: string,
  user: User,
): Promise<MergedUser> {
  let { identity } = user;
  if (user.userId !== undefined) {
    const [merged] = (await readMerged(client, [appId], [], [user.userId])) ?? [];
    if (merged === undefined) {
      const userIds = [user.userId];
      return { identity, userIds, hasMore: false, ask: asking(client, { identities: [], userIds }) };
    }
    identity = merged.identity;
  }
  if (identity === undefined) throw new Error('a user has an identity or a user_id');
  const { userIdsMax } = userLookUps;
  const merged = await readMerged(client, [appId], [identity], [], userIdsMax + 1);
  const userIds = merged.slice(0, userIdsMax).map(({ user_id }) => user_id);
  const ask = asking(client, { identities: [identity], userIds });
  return { identity, userIds, hasMore: merged.length > userIdsMax, ask };
}

/** The condition on rows of the named users. It uses the Bloom filters of both columns. */
export const isNamed = `(identity IN (SELECT identity FROM ${namedUsers} WHERE user_id IS NULL)
  OR user_id IN (SELECT assumeNotNull(user_id) FROM ${namedUsers} WHERE user_id IS NOT NULL))`;

/** Asks about the rows of some names with `isNamed`. A query that takes too long is given up. */
export type Ask = <Row>(query: string, params: Readonly<Record<string, unknown>>) => Promise<Row[]>;

export function asking(client: ClickHouseClient, users: NamedUsers): Ask {
  return (query, params) =>
    askAbout(client, users, query, { params, secondsMax: userLookUps.querySecondsMax });
}
