// Users as privacy officers see them in the console: shows what is held about a user, and suppresses users.

import { codeOfFault, faultCodes } from '../clickhouse/client.js';
import { AdministrationError, Unavailable } from '../contract/errors.js';
import { lengths } from '../contract/lengths.js';
import { createCrashPoint } from '../crash-point.js';
import { countUserEvents, lookUpUser } from '../insights/users/look-up.js';
import { findSimilar } from '../insights/users/similar.js';
import { readCursor, readTimeLine } from '../insights/users/time-line.js';
import type { AdminContext } from '../operations/context.js';
import { isLongerThan } from '../parsing/code-points.js';
import { TooManyNames } from '../privacy/suppression/change.js';
import { countSuppressed, lookUpSuppression } from '../privacy/suppression/look-up.js';
import type { User } from '../privacy/suppression/names.js';
import { freeUsers, NotStoredYet, suppressUsers, userOf } from '../privacy/suppression/submit.js';
import {
  accountNamed,
  appIdsOf,
  environmentNamed,
  readLoadedRegistry,
  readRegistry,
} from '../registry/registry.js';
import { byServer, clickhouseOf, readWhereStored } from '../registry/shard-servers.js';
import { deploymentOf, targetsOfUsers } from './exports.js';

/** Reads the one user that is named, by exactly one of identity, user_id and anonymous_id. */
export function readUser(named: unknown): User {
  const [target] = targetsOfUsers([named]);
  if (target === undefined) throw new AdministrationError('exactly one user must be named');
  return userOf(target);
}

/** What is held about a user in an environment, and whether the user is suppressed. `withEvents`: also counts the events. */
export async function showUser(context: AdminContext, appId: string, named: unknown, withEvents: boolean) {
  const user = readUser(named);
  const { redis } = context;
  const { accountId, appIds, secret } = await environmentOf(context, appId);
  const held = await readHeld(context, async () => {
    const clickhouse = clickhouseOf(context.clickhouse, appId);
    const found = await lookUpUser(clickhouse, appId, user);
    return { ...found, ...(withEvents ? { events: await countUserEvents(clickhouse, appId, user) } : {}) };
  });
  const name: User = held.identity === null ? user : { identity: held.identity };
  return {
    app_id: appId,
    ...held,
    suppression: await lookUpSuppression(redis, secret, accountId, appIds, name),
  };
}

/** For each event name of a user: how many are stored, and the first and the last time. */
export async function showEventCounts(context: AdminContext, appId: string, named: unknown) {
  const user = readUser(named);
  await environmentOf(context, appId);
  const read = () => countUserEvents(clickhouseOf(context.clickhouse, appId), appId, user);
  return { app_id: appId, events: await readHeld(context, read) };
}

/** Identities that look like the given one, in any of these environments. */
export async function similarTo(context: AdminContext, appIds: readonly string[], given: string) {
  const { identity = given } = readUser({ identity: given });
  return readHeld(context, async () => {
    const found = new Set<string>();
    for (const [client, ofServer] of byServer(context.clickhouse, appIds))
      for (const other of await findSimilar(client, ofServer, identity)) found.add(other);
    return [...found].sort();
  });
}

/** A page of a user's events. */
export async function showUserEvents(
  context: AdminContext,
  appId: string,
  named: unknown,
  { event, cursor }: { readonly event?: string | undefined; readonly cursor?: string | undefined },
) {
  const user = readUser(named);
  checkEventName(event);
  await environmentOf(context, appId);
  const after = cursor === undefined ? undefined : readCursor(cursor);
  if (cursor !== undefined && after === undefined)
    throw new AdministrationError('cursor must come from an earlier answer');
  const read = () => readTimeLine(clickhouseOf(context.clickhouse, appId), appId, user, { event, after });
  return { app_id: appId, ...(await readHeld(context, read)) };
}

/** Refuses a name that no event can have, since ClickHouse's URL, which carries the parameters, could not hold it. */
export function checkEventName(event = ''): void {
  if (isLongerThan(event, lengths.eventMax))
    throw new AdministrationError(`event must have at most ${lengths.eventMax} characters`);
}

/** Suppresses users of an account, or frees them. */
export async function changeSuppression(
  context: AdminContext,
  accountId: string,
  users: unknown,
  suppress: boolean,
) {
  const targets = targetsOfUsers(users);
  const { redis, clickhouse, config } = context;
  const { epoch, shards, secret } = await deploymentOf(context, accountId);
  const crash = createCrashPoint(config.crashAt);
  const work = suppress ? suppressUsers : freeUsers;
  await work({ redis, clickhouse, epoch, shards, secret, crash }, accountId, targets).catch(
    (error: unknown) => {
      if (error instanceof TooManyNames) throw new AdministrationError(error.message);
      if (error instanceof NotStoredYet)
        throw new AdministrationError(
          'records that were accepted earlier are not stored yet: try again later',
        );
      throw error;
    },
  );
  return { account_id: accountId, users: targets.length, suppress };
}

/** How many users of an account are suppressed. Names are stored only as hashes, so the users cannot be listed. */
export async function showSuppressed({ redis }: AdminContext, accountId: string) {
  const snapshot = await readRegistry(redis);
  accountNamed(snapshot, accountId);
  const counts = await countSuppressed(redis, accountId, appIdsOf(snapshot, accountId));
  return { account_id: accountId, ...counts };
}

/** An environment's account, with its app_ids, and the deployment's secret. */
export async function environmentOf({ redis }: AdminContext, appId: string) {
  const snapshot = await readLoadedRegistry(redis);
  const { account_id: accountId } = environmentNamed(snapshot, appId);
  return { accountId, appIds: appIdsOf(snapshot, accountId), secret: snapshot.deployment.secret };
}

/** Whether a query has taken longer than it may. */
export function isTimeout(error: unknown): boolean {
  return codeOfFault(error) === faultCodes.timeoutExceeded;
}

/** ClickHouse takes too long at the moment; the caller may try again later. */
export class TakesTooLong extends Unavailable {}

/** Reads what is held about users. A timeout becomes a refusal that says what to do instead. */
export function readHeld<Result>(
  { redis, clickhouse }: Pick<AdminContext, 'redis' | 'clickhouse'>,
  read: () => Promise<Result>,
): Promise<Result> {
  return inTime(readWhereStored(redis, clickhouse, read));
}

/** Turns a query's timeout into a refusal that says what to do instead. */
export async function inTime<Result>(
  work: Promise<Result>,
  remedy = 'ask for an export instead',
): Promise<Result> {
  return work.catch((error: unknown) => {
    if (!isTimeout(error)) throw error;
    throw new AdministrationError(`ClickHouse takes too long: ${remedy}`);
  });
}
