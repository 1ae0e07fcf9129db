// The registry: documents in one Redis hash, changed by optimistic writes. Owns reading and changing them; what a change means is in
// accounts/. A process reads them only when their version has changed, and only a few at a time, so that a large registry holds up
// neither Redis nor the other requests of the process.

import { AdministrationError, StateNotLoaded } from '../contract/errors.js';
import { administration } from '../contract/limits.js';
import type { Redis } from '../redis/client.js';
import { hashPieces } from '../redis/hash-pieces.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { transactionValues } from '../redis/transactions.js';
import { sharing } from '../wait.js';
import type { Account, Deployment, DocumentKey, Documents, Environment, KeyOf } from './documents.js';

export type RegistrySnapshot = Readonly<ReturnType<typeof snapshotOf>>;

export type Change = { readonly key: DocumentKey; readonly document: object | undefined };

/**
 * Reads in one step with the epoch, since in an emptied Redis everything else is missing too. Settles with the values of the commands
 * that `read` adds to the transaction. Throws StateNotLoaded when Redis was emptied, or has another deployment than that of `epoch`.
 */
export async function readLoaded(
  redis: Redis,
  read: (transaction: Transaction) => Transaction,
  epoch?: string,
): Promise<unknown[]> {
  const replies = await read(redis.multi().get(registryKeys.epoch)).exec();
  const [found, ...values] = transactionValues(replies);
  if (found === null || found !== (epoch ?? found)) throw new StateNotLoaded();
  return values;
}

type Transaction = ReturnType<Redis['multi']>;

/** One document; undefined if there is none. Throws StateNotLoaded when Redis was emptied. */
export async function readDocument<Kind extends keyof Documents>(
  redis: Redis,
  key: KeyOf<Kind>,
): Promise<Documents[Kind] | undefined> {
  const [text] = await readLoaded(redis, (transaction) => transaction.hget(registryKeys.documents, key));
  return typeof text === 'string' ? (JSON.parse(text) as Documents[Kind]) : undefined;
}

/** The registry's version, which changes whenever a document does, and how many times sessions were ended. */
export async function readChanges(redis: Redis): Promise<{ version: string; endings: string }> {
  const [version, endings] = await redis.mget(registryKeys.version, registryKeys.sessionEndings);
  return { version: version ?? '0', endings: endings ?? '0' };
}

/** Milliseconds since 1970 by Redis's clock, so that keys and invitations expire for all processes at once. */
export async function readTime(redis: Redis): Promise<number> {
  // On a cluster the command TIME could go to another server, even to one that is away.
  const time = await runScript(redis, scripts.time, [registryKeys.epoch], []);
  const [seconds, micros] = time as [string, string];
  return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
}

/**
 * Settles with all documents as they are at the call or later. Only the times at which keys were used may be older, since they do not raise
 * the version. Calls that come meanwhile with the same connection share a reading.
 */
export function readRegistry(redis: Redis): Promise<RegistrySnapshot> {
  const read = readers.get(redis) ?? sharing(() => readAnew(redis));
  readers.set(redis, read);
  return read();
}

const readers = new WeakMap<Redis, () => Promise<RegistrySnapshot>>();

async function readAnew(redis: Redis): Promise<RegistrySnapshot> {
  for (let attempt = 1; attempt <= readsInTurnsMax; attempt++) {
    const [version, epoch] = await readStamp(redis);
    const known = snapshots.get(redis);
    if (known !== undefined && known.version === version && known.deployment?.epoch === epoch) return known;
    const documents = epoch === null ? new Map<string, unknown>() : await readInTurns(redis);
    const after = await readStamp(redis);
    if (documents !== undefined && after[0] === version && after[1] === epoch)
      return keep(redis, version, documents);
  }
  // The registry changed during every attempt, so it is read in one step, for which Redis makes others wait.
  const replies = await redis
    .multi()
    .get(registryKeys.version)
    .hgetall(registryKeys.documents)
    .exists(registryKeys.epoch)
    .exec();
  const [version, texts, isLoaded] = transactionValues(replies) as [string | null, object, number];
  const documents = Object.entries(isLoaded === 0 ? {} : texts).map(
    ([key, text]) => [key, JSON.parse(text)] as const,
  );
  return keep(redis, version ?? '0', new Map<string, unknown>(documents));
}

/** The last snapshot of a loaded registry that each connection has read. */
const snapshots = new WeakMap<Redis, RegistrySnapshot>();
const readsInTurnsMax = 3;
/** Usually 30 kB; 4 MB if all documents were as long as they may be. */
const documentsPerTurn = 100;

async function readStamp(redis: Redis): Promise<[version: string, epoch: string | null]> {
  const [version, epoch = null] = await redis.mget(registryKeys.version, registryKeys.epoch);
  return [version ?? '0', epoch];
}

/** Settles with undefined if documents are missing: a cluster has moved the hash to another node, which does not know the cursor. */
async function readInTurns(redis: Redis): Promise<Map<string, unknown> | undefined> {
  const documents = new Map<string, unknown>();
  const count = await redis.hlen(registryKeys.documents);
  for await (const entries of hashPieces(redis, registryKeys.documents, documentsPerTurn))
    for (const [key, text] of entries) documents.set(key, JSON.parse(text));
  return documents.size < count ? undefined : documents;
}

function keep(redis: Redis, version: string, documents: ReadonlyMap<string, unknown>): RegistrySnapshot {
  const snapshot = snapshotOf(version, documents);
  if (snapshot.deployment !== undefined) snapshots.set(redis, snapshot);
  return snapshot;
}

/** Like `readRegistry`, but throws StateNotLoaded when Redis was emptied. */
export async function readLoadedRegistry(
  redis: Redis,
): Promise<RegistrySnapshot & { readonly deployment: Deployment }> {
  const { deployment, ...others } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
  return { ...others, deployment };
}

function snapshotOf(version: string, documents: ReadonlyMap<string, unknown>) {
  const kinds = new Map<string, Map<string, unknown>>();
  for (const [key, document] of documents) {
    const colon = key.indexOf(':');
    const kind = key.slice(0, colon);
    const ofKind = kinds.get(kind) ?? new Map<string, unknown>();
    kinds.set(kind, ofKind.set(key.slice(colon + 1), document));
  }
  const all = <Kind extends keyof Documents>(kind: Kind) =>
    (kinds.get(kind) ?? new Map()) as ReadonlyMap<string, Documents[Kind]>;
  /** The document of a kind that has only one, under an empty id. */
  const only = <Kind extends keyof Documents>(kind: Kind) => all(kind).get('');
  return {
    version,
    /** Undefined if this Redis has none: at a first start, or after it was emptied. */
    deployment: only('deployment'),
    accounts: all('account'),
    environments: all('environment'),
    apiKeys: all('api_key'),
    writeKeys: all('write_keys'),
    /** By account; those of operators by an empty name. */
    programKeys: all('program_keys'),
    people: all('person'),
    /** By account. */
    formerPeople: all('former_people'),
    backups: only('backups') ?? [],
    /** Undefined if it is not made yet. */
    signingKey: only('signing_key'),
    /** By account. */
    callbacks: all('callback'),
    /** Undefined until there is more than one ClickHouse server. */
    shardServers: only('shard_servers'),
  };
}

/** An account. Throws AdministrationError if there is none of this id. */
export function accountNamed({ accounts }: Pick<RegistrySnapshot, 'accounts'>, accountId: string): Account {
  const account = accounts.get(accountId);
  if (account === undefined) throw new AdministrationError(`there is no account ${accountId}`);
  return account;
}

/** An environment. Throws AdministrationError if there is none of this id. */
export function environmentNamed({ environments }: HasEnvironments, appId: string): Environment {
  const environment = environments.get(appId);
  if (environment === undefined) throw new AdministrationError(`there is no environment ${appId}`);
  return environment;
}

export function environmentsOf({ environments }: HasEnvironments, accountId: string): Environment[] {
  return [...environments.values()].filter(({ account_id }) => account_id === accountId);
}

export function appIdsOf(snapshot: HasEnvironments, accountId: string): string[] {
  return environmentsOf(snapshot, accountId).map(({ app_id }) => app_id);
}

type HasEnvironments = Pick<RegistrySnapshot, 'environments'>;

/**
 * Changes documents: `decide` gets a snapshot and returns the changes and a result. It is called again if another writer was faster.
 * Throws StateNotLoaded when this Redis does not belong to the deployment.
 */
export async function changeRegistry<T>(
  redis: Redis,
  decide: (snapshot: RegistrySnapshot) => { changes: Change[]; result: T },
): Promise<T> {
  for (let attempt = 0; attempt < administration.changeAttemptsMax; attempt++) {
    const snapshot = await readLoadedRegistry(redis);
    const { changes, result } = decide(snapshot);
    if (changes.length === 0) return result;
    const texts = changes.flatMap(({ key, document }) => [key, document ? JSON.stringify(document) : '']);
    const { epoch, documents, version, uncopied } = registryKeys;
    const args = [snapshot.deployment.epoch, snapshot.version, ...texts];
    const keys = [epoch, documents, version, uncopied];
    const written = await runScript(redis, scripts.writeRegistry, keys, args);
    if (Number(written) === -2) throw new StateNotLoaded();
    if (Number(written) !== -1) return result;
  }
  throw new Error('the registry kept changing while it was updated');
}
