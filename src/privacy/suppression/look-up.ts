// Queries of administrators and compliance callers: whether a user is suppressed, and how many users of an account are.

import type { suppressionSchemas } from '../../contract/privacy-answers.js';
import type { Static } from '../../contract/typebox.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { readTotals } from '../../registry/ledger-totals.js';
import { readLoaded, readLoadedRegistry } from '../../registry/registry.js';
import { createNameHasher, inEnvironment, type User } from './names.js';

export type SuppressionOfUser = Static<typeof suppressionSchemas.ofUser>;

export async function lookUpSuppression(
  redis: Redis,
  secret: string,
  accountId: string,
  appIds: readonly string[],
  user: User,
): Promise<SuppressionOfUser> {
  const name = createNameHasher(secret, accountId).textOf(user);
  const names = [name, ...appIds.map((appId) => inEnvironment(name, appId))];
  const [values] = await readLoaded(redis, (transaction) =>
    transaction.hmget(registryKeys.suppressedNames(accountId), ...names),
  );
  const [everywhere, ...somewhere] = values as (string | null)[];
  const found = [everywhere, ...somewhere].flatMap((value) => value ?? []);
  if (found.length === 0) return { suppressed: false };
  const sinceUs = Math.min(...found.map((value) => Number(value.slice(0, value.indexOf(' ')))));
  const since = new Date(sinceUs / 1000).toISOString();
  if (everywhere != null) return { suppressed: true, since };
  return { suppressed: true, since, app_ids: appIds.filter((_, i) => somewhere[i] != null) };
}

export async function countSuppressed(
  redis: Redis,
  accountId: string,
  appIds: readonly string[],
): Promise<Static<typeof suppressionSchemas.counts>> {
  const { deployment } = await readLoadedRegistry(redis);
  const [users, names, records] = await Promise.all([
    redis.hget(registryKeys.suppressions, `users:${accountId}`),
    redis.hlen(registryKeys.suppressedNames(accountId)),
    readTotals(redis, deployment.shards, appIds, ['suppressed']),
  ]);
  return {
    users: Number(users ?? 0),
    names,
    records: records.get('suppressed') ?? 0,
  };
}
