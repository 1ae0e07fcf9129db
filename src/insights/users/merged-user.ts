// The merged user that a name stands for in one environment: its identity and all of its user_ids, as in the view `users`.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { askAbout, namedUsers } from '../../clickhouse/named-users.js';
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
    if (merged === undefined) return { identity: undefined, userIds: [user.userId], hasMore: false };
    identity = merged.identity;
  }
  if (identity === undefined) throw new Error('a user has an identity or a user_id');
  const { userIdsMax } = userLookUps;
  const merged = await readMerged(client, [appId], [identity], [], userIdsMax + 1);
  const userIds = merged.map(({ user_id }) => user_id);
  return { identity, userIds: userIds.slice(0, userIdsMax), hasMore: userIds.length > userIdsMax };
}

/** The condition on rows of the users passed to `withNames`. It uses the Bloom filters of both columns. */
export const isNamed = `(identity IN (SELECT identity FROM ${namedUsers} WHERE user_id IS NULL)
  OR user_id IN (SELECT assumeNotNull(user_id) FROM ${namedUsers} WHERE user_id IS NOT NULL))`;

export type Ask = <Row>(query: string, params?: Readonly<Record<string, unknown>>) => Promise<Row[]>;

/** Asks ClickHouse about the rows of some names, one query after the other. A query that takes too long is given up. */
export async function withNames<Result>(
  client: ClickHouseClient,
  identities: readonly string[],
  userIds: readonly string[],
  work: (ask: Ask) => Promise<Result>,
): Promise<Result> {
  return work((query, params = {}) =>
    askAbout(client, { identities, userIds }, query, { params, secondsMax: userLookUps.querySecondsMax }),
  );
}
