// The suppressions in the memory of an API process: for each account with suppressed users a set of their names, and the version of the
// list that was last read. The process reads twice a second, and at once when the commit script says that there is a later version.

import { type Log, reportOnce } from '../../log.js';
import type { Redis } from '../../redis/client.js';
import { hashPieces } from '../../redis/hash-pieces.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { transactionValues } from '../../redis/transactions.js';
import type { Deployment } from '../../registry/documents.js';
import type { LiveEnvironment } from '../../registry/environments.js';
import { repeat } from '../../repeat.js';
import { suppressionChanges } from '../../tuning.js';
import { sharing } from '../../wait.js';
import { joinTo } from './joins.js';
import { createNameSet, type NameSet } from './name-set.js';
import { createNameHasher, inEnvironment, type NameHasher, type NameText, readName } from './names.js';

/** Who is suppressed in one environment. */
export type SuppressedUsers = {
  hasIdentity(identity: string): boolean;
  hasUserId(userId: string): boolean;
  hasIdentityBytes(bytes: Uint8Array, start: number, end: number): boolean;
  hasUserIdBytes(bytes: Uint8Array, start: number, end: number): boolean;
  /** The name under which a commit may join an anonymous user of this environment to a suppressed one. */
  nameOfUserId(userId: string): NameText;
  /** The value that a commit records under that name when the user is identified as this suppressed identity. */
  joinOf(identity: string): string;
};

export type Suppressions = {
  /** The version that is known; -1 before the first read. */
  readonly version: () => number;
  /** Who is suppressed in an environment; undefined if no user of its account is. Valid until the next turn of the event loop. */
  of(environment: LiveEnvironment): SuppressedUsers | undefined;
  /** Settles when at least this version is known. Rejects when Redis does not answer, or does not hold the deployment. */
  reach(version: number): Promise<void>;
  close(): void;
};

type OfAccount = {
  readonly hasher: NameHasher;
  readonly names: NameSet;
  /** Numbers of environments from 1 on; 0 is all of them. */
  readonly scopes: Map<string, number>;
  readonly views: Map<string, SuppressedUsers>;
};

const pollEveryMs = 500;

/** Starts to follow the suppressions. Settles after the first attempt to read them, successful or not. */
export async function followSuppressions(
  redis: Redis,
  deployment: () => Deployment | undefined,
  log: Log,
): Promise<Suppressions> {
  let version = -1;
  let accounts = new Map<string, OfAccount>();

  async function read(): Promise<void> {
    const known = deployment();
    if (known === undefined) return;
    for (;;) {
      const { latest, changesFrom, changes } = await readState(known.epoch);
      // A lower version than before: Redis has lost changes.
      if (version < changesFrom || latest < version || !(await applyAll(changes, known.secret))) {
        await readAll(known);
        continue;
      }
      if (changes.length === suppressionChanges.changesPerReadMax) continue;
      version = latest;
      return;
    }
  }

  /** Settles with false after a take-over by a server that lacks changes which this process knows. */
  async function applyAll(changes: readonly string[], secret: string): Promise<boolean> {
    for (const change of changes) {
      const versionBefore = change.split('\n')[4];
      if (versionBefore === undefined) apply(change, secret);
      else if (version > Number(versionBefore)) return false;
      version = Number(change.slice(0, change.indexOf(' ')));
      // Applying a change with many names takes long: let waiting requests run.
      await new Promise((resolve) => setImmediate(resolve));
    }
    return true;
  }

  /** Reads in one transaction, so that no change is dropped between reading how far back the changes go and reading the changes. */
  async function readState(wanted: string) {
    const { suppressions: state, suppressionChanges: changes } = registryKeys;
    const [epoch, fields, found] = transactionValues(
      await redis
        .multi()
        .get(registryKeys.epoch)
        .hmget(state, 'version', 'changes_from')
        .zrangebyscore(changes, `(${version}`, '+inf', 'LIMIT', 0, suppressionChanges.changesPerReadMax)
        .exec(),
    );
    // Nothing is to be concluded from an emptied Redis.
    if (epoch !== wanted) throw new Error('Redis does not hold the deployment');
    const [latest, changesFrom] = fields as (string | null)[];
    return {
      latest: Number(latest ?? 0),
      changesFrom: Number(changesFrom ?? 0),
      changes: found as string[],
    };
  }

  /**
   * Reads all names. Changes made during the read come after the version that was read first, so they are applied later. If Redis is
   * emptied during the read, names are missing; but the load that follows gives it a higher version, after the names.
   */
  async function readAll({ secret }: Deployment): Promise<void> {
    const state = await redis.hgetall(registryKeys.suppressions);
    const read = new Map<string, OfAccount>();
    for (const field of Object.keys(state)) {
      if (!field.startsWith('users:')) continue;
      const accountId = field.slice('users:'.length);
      const key = registryKeys.suppressedNames(accountId);
      const account = emptyAccount(secret, accountId, await redis.hlen(key));
      for await (const entries of hashPieces(redis, key, suppressionChanges.namesPerReadMax))
        for (const [name] of entries) addName(account, name);
      if (account.names.size() > 0) read.set(accountId, account);
    }
    accounts = read;
    version = Number(state.version ?? 0);
  }

  function apply(change: string, secret: string): void {
    const [head = '', added = '', , freed = ''] = change.split('\n');
    const accountId = head.slice(head.indexOf(' ') + 1);
    let account = accounts.get(accountId);
    if (account === undefined) {
      account = emptyAccount(secret, accountId, 0);
      accounts.set(accountId, account);
    }
    for (const pair of wordsOf(added)) addName(account, pair.slice(0, pair.indexOf('|')));
    for (const name of wordsOf(freed)) removeName(account, name);
    if (account.names.size() === 0) accounts.delete(accountId);
  }

  /** Settles after a read that began after this call. */
  const readAnew = sharing(read);

  async function reach(wanted: number): Promise<void> {
    if (version >= wanted) return;
    await readAnew();
    const known = deployment();
    if (version >= wanted || known === undefined) return;
    const keys = [registryKeys.epoch, registryKeys.suppressions];
    await runScript(redis, scripts.floorSuppressions, keys, [known.epoch, wanted]);
    await readAnew();
  }

  const faults = reportOnce(log, 'the suppressions cannot be read');
  const work = () => readAnew().then(faults.forget);
  const { first, stop } = repeat({ work, everyMs: pollEveryMs, failed: faults.report });
  await first;
  return {
    version: () => version,
    of: ({ accountId, appId }) => {
      const account = accounts.get(accountId);
      return account === undefined ? undefined : viewOf(account, accountId, appId);
    },
    reach,
    close: () => void stop(),
  };
}

function emptyAccount(secret: string, accountId: string, room: number): OfAccount {
  const hasher = createNameHasher(secret, accountId);
  return { hasher, names: createNameSet(room), scopes: new Map(), views: new Map() };
}

function addName(account: OfAccount, text: string): void {
  const { hash, appId } = readName(text);
  account.names.add(hash, appId === undefined ? 0 : scopeOf(account, appId));
}

function removeName(account: OfAccount, text: string): void {
  const { hash, appId } = readName(text);
  account.names.remove(hash, appId === undefined ? 0 : scopeOf(account, appId));
}

function scopeOf({ scopes }: OfAccount, appId: string): number {
  const known = scopes.get(appId);
  if (known !== undefined) return known;
  scopes.set(appId, scopes.size + 1);
  return scopes.size;
}

function viewOf(account: OfAccount, accountId: string, appId: string): SuppressedUsers {
  const known = account.views.get(appId);
  if (known !== undefined) return known;
  const view = usersOfSet(account.hasher, account.names, scopeOf(account, appId), { accountId, appId });
  account.views.set(appId, view);
  return view;
}

export function usersOfSet(
  hasher: NameHasher,
  names: NameSet,
  scope: number,
  { accountId, appId }: Pick<LiveEnvironment, 'accountId' | 'appId'>,
): SuppressedUsers {
  return {
    hasIdentity: (identity) => names.has(hasher.ofIdentity(identity), scope),
    hasUserId: (userId) => names.has(hasher.ofUserId(userId), scope),
    hasIdentityBytes: (bytes, start, end) => names.has(hasher.ofIdentityBytes(bytes, start, end), scope),
    hasUserIdBytes: (bytes, start, end) => names.has(hasher.ofUserIdBytes(bytes, start, end), scope),
    nameOfUserId: (userId) => inEnvironment(hasher.textOf({ userId }), appId),
    joinOf: (identity) => joinTo(accountId, hasher.textOf({ identity })),
  };
}

function wordsOf(line: string): readonly string[] {
  return line === '' ? [] : line.split(' ');
}
