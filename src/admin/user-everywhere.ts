// A user in all environments of an account, as privacy officers look them up: where data about them is held, whether they are suppressed,
// which identities look alike, and which requests concern them.

import { lookUpEverywhere, namesEverywhere } from '../insights/users/everywhere.js';
import type { AdminContext } from '../operations/context.js';
import { findRequestsOf } from '../privacy/cases/requests-of-user.js';
import { lookUpSuppression } from '../privacy/suppression/look-up.js';
import type { User } from '../privacy/suppression/names.js';
import { accountNamed, environmentsOf, readLoadedRegistry } from '../registry/registry.js';
import { readHeld, readUser } from './users.js';

/** Where data about a user is held, under every name that belongs to the given one, and which of these names are suppressed. */
export async function showUserEverywhere(context: AdminContext, accountId: string, named: unknown) {
  const user = readUser(named);
  const { appIds, secret } = await accountOf(context, accountId);
  const { names, places } = await readHeld(context, async () => {
    const names = await namesEverywhere(context.clickhouse, appIds, user);
    return { names, places: await lookUpEverywhere(context.clickhouse, appIds, names) };
  });
  const suppressions = await Promise.all(
    names.map((name) => lookUpSuppression(context.redis, secret, accountId, appIds, name)),
  );
  return {
    account_id: accountId,
    names: names.map((name, at) => ({ ...inFields(name), suppression: suppressions[at] })),
    places,
  };
}

/** The deletions and exports of the account that concern a user. */
export async function showRequestsOf(context: AdminContext, accountId: string, named: unknown) {
  const user = readUser(named);
  const { redis, clickhouse } = context;
  const { appIds, secret } = await accountOf(context, accountId);
  const names = await readHeld(context, () => namesEverywhere(clickhouse, appIds, user));
  const targets = names.map(({ identity, userId }) =>
    identity === undefined ? (`u${userId}` as const) : (`i${identity}` as const),
  );
  return {
    account_id: accountId,
    ...(await findRequestsOf({ redis, clickhouse, secret }, accountId, targets)),
  };
}

function inFields({ identity, userId }: User) {
  return identity === undefined ? { user_id: userId } : { identity };
}

/** The environments of an account, the main one first, and the deployment's secret. */
export async function accountOf({ redis }: AdminContext, accountId: string) {
  const snapshot = await readLoadedRegistry(redis);
  const account = accountNamed(snapshot, accountId);
  const own = environmentsOf(snapshot, accountId).sort(
    (a, b) => Number(b.main) - Number(a.main) || a.created_at.localeCompare(b.created_at),
  );
  return { account, appIds: own.map(({ app_id }) => app_id), secret: snapshot.deployment.secret };
}
