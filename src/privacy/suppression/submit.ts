// Suppressing or freeing users. Once it settles, the change applies to every record that is sent from then on, in every API process, and
// both Redis and ClickHouse have it. Each step may be repeated: after an interruption the caller sends the submission again.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { createPlaces } from '../../concurrency.js';
import { Busy, Fault } from '../../contract/errors.js';
import { suppressions } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import { suppressionSchema } from '../../contract/schemas.js';
import { Compile } from '../../contract/typebox.js';
import type { CrashPoint } from '../../crash-point.js';
import { type Document, parseDocument } from '../../parsing/document.js';
import { shardOf } from '../../redis/keys.js';
import { copyChanges, kindsOfCopies } from '../../registry/outbox.js';
import { appIdsOf, readRegistry } from '../../registry/registry.js';
import { byServer, readUnmoved } from '../../registry/shard-servers.js';
import { takeFences, untilStored } from '../deletion/fences.js';
import { readLookup, readUsers, type Target } from '../deletion/targets.js';
import {
  areFree,
  areSuppressed,
  type ChangeOptions,
  freeNames,
  type Suppressed,
  suppressNames,
} from './change.js';
import { moveJoins } from './joins.js';
import { findMergedNames } from './merged-names.js';
import { createNameHasher, inEnvironment, type NameText, type User } from './names.js';

export type SuppressOptions = ChangeOptions & {
  readonly clickhouse: ClickHouseClient;
  readonly secret: string;
  readonly crash: CrashPoint;
};

/** Earlier records are not stored yet, or are being moved between ClickHouse servers, so it is unknown with whom the users are merged. */
export class NotStoredYet extends Fault {
  readonly outcome = 'unknown';
  override readonly toCallers =
    'The named users are suppressed, those merged with them perhaps not yet: records that were accepted before are not stored yet. Send the request again.';

  constructor() {
    super('records that were accepted before are not stored yet');
  }
}

/** Redis was emptied before the change was copied, and loaded without it; or another submission has undone the change. */
const changeLost = 'the change of the suppressions is no longer in Redis';

/** Other changes of the account, or of all accounts, have not ended in time. */
class TooManyChanges extends Busy {
  override readonly toCallers = 'Nothing was stored: too many changes of suppressed users at once.';

  constructor() {
    super('too many changes of suppressed users at once: try again later');
  }
}

type Change = (options: SuppressOptions, accountId: string, targets: readonly Target[]) => Promise<void>;

/** In each process accounts take turns, since a change may take seconds of CPU. */
const places = createPlaces(suppressions.changes);

function inTurn(change: Change): Change {
  return async (options, accountId, targets) => {
    const changed = await places.within({ account: accountId }, () => change(options, accountId, targets));
    if (changed === 'busy') throw new TooManyChanges();
  };
}

/**
 * Suppresses users, each together with the users that it is merged with. Rejects with TooManyChanges, or with TooManyNames, NotStoredYet or
 * StateNotLoaded, or if the change is lost; the named users may then be suppressed already.
 */
export const suppressUsers = inTurn(suppress);

/** Frees users from every suppression that reaches them. Other users that are suppressed for the same reason are freed too. */
export const freeUsers = inTurn(free);

async function suppress(
  options: SuppressOptions,
  accountId: string,
  targets: readonly Target[],
): Promise<void> {
  const { redis, clickhouse, secret, crash } = options;
  const hasher = createNameHasher(secret, accountId);
  const users = targets.map(userOf);
  const named = users.map((user): Suppressed => [hasher.textOf(user), '-']);
  // Before the change, so that it finds the users who were joined so far.
  await moveJoins(options, shardsOf(appIdsOf(await readRegistry(redis), accountId), options.shards));
  await suppressNames(options, accountId, named);
  crash('suppressed');
  /** Passes the names of the merged users to `take`, some at a time. */
  const forMerged = async (appIds: readonly string[], take: (some: Suppressed[]) => Promise<void>) => {
    for (const [client, ofServer] of byServer(clickhouse, appIds))
      for await (const some of findMergedNames(client, ofServer, users, hasher)) await take(some);
  };
  let appIds: readonly string[] = [];
  // Until the identity of a user_id is suppressed too, other users may be identified by it. So this is repeated until it finds no new
  // names.
  for (let isNew = true; isNew; ) {
    // From here on no identification of a suppressed user is accepted, so there are none above the fences.
    const fences = await takeFences(options);
    crash('suppression_raised');
    appIds = appIdsOf(await readRegistry(redis), accountId);
    const shards = shardsOf(appIds, options.shards);
    if (!(await untilStored(options, fences, shards, storedTimes))) throw new NotStoredYet();
    const found = await readUnmoved(redis, clickhouse, shards, async () => {
      let added = 0;
      await forMerged(appIds, async (some) => {
        added += await suppressNames(options, accountId, some);
      });
      return added;
    });
    if (found === 'moved') throw new NotStoredYet();
    isNew = found > 0;
  }
  crash('suppression_resolved');
  await copyChanges(redis, clickhouse, { kind: kindsOfCopies.suppressions });
  const check = async (some: readonly Suppressed[]) => {
    if (!(await areSuppressed(options, accountId, some))) throw new Error(changeLost);
  };
  await check(named);
  await forMerged(appIds, check);
}

async function free(options: SuppressOptions, accountId: string, targets: readonly Target[]): Promise<void> {
  const { redis, clickhouse, secret } = options;
  const hasher = createNameHasher(secret, accountId);
  const appIds = appIdsOf(await readRegistry(redis), accountId);
  function* names(): Generator<NameText> {
    for (const target of targets) {
      const name = hasher.textOf(userOf(target));
      yield name;
      for (const appId of appIds) yield inEnvironment(name, appId);
    }
  }
  const shards = shardsOf(appIds, options.shards);
  await moveJoins(options, shards);
  await freeNames(options, accountId, names());
  await takeFences(options);
  // Forgets users who were joined to one of them in the meantime.
  await moveJoins(options, shards);
  await copyChanges(redis, clickhouse, { kind: kindsOfCopies.suppressions });
  if (!(await areFree(options, accountId, names()))) throw new Error(changeLost);
}

export function userOf(target: Target): User {
  const text = target.slice(1);
  return target.startsWith('i') ? { identity: text } : { userId: text };
}

function shardsOf(appIds: readonly string[], shards: number): Set<number> {
  return new Set(appIds.map((appId) => shardOf(appId, shards)));
}

const storedTimes = { everyMs: 25, msMax: suppressions.storedMsMax };

export type SuppressionWish = { readonly targets: readonly Target[]; readonly suppress: boolean };

const validator = Compile(suppressionSchema);

/** The distinct users of a submission's document, and whether they are to be suppressed; or the reason to refuse it. */
export function readWish(document: Document): SuppressionWish | Rejection {
  const targets = readUsers(validator, document);
  if ('code' in targets) return targets;
  return {
    targets: [...new Set(targets)],
    suppress: (document.value as { suppress: boolean }).suppress,
  };
}

const names = ['identity', 'user_id', 'anonymous_id'] as const;

/** The user that a query names; `none` if it names none, or the reason to refuse it. */
export function readUser(parameters: URLSearchParams): User | 'none' | Rejection {
  const given = names.filter((name) => parameters.has(name));
  const [name] = given;
  if (name === undefined) return 'none';
  if (given.length > 1 || parameters.getAll(name).length > 1)
    return rejection(
      'ambiguous_user',
      'At most one of identity, user_id and anonymous_id may be given.',
      name,
    );
  const value = parameters.get(name) ?? '';
  // The same schema as for a list of users checks it.
  const document = parseDocument(Buffer.from(JSON.stringify({ users: [{ [name]: value }] })));
  const targets = 'code' in document ? document : readLookup(document);
  if (!('code' in targets)) return userOf(targets[0] as Target);
  return rejection(targets.code, targets.message.replace('users.0.', ''), name);
}
