// An API process's copy of the environments and keys of the registry. It is updated twice a second, and at once for an unknown app_id.
// The copy is used even while Redis is unreachable; the commit script decides whether anything is accepted.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { inBatches } from '../batches.js';
import { type LimitName, type RateLimit, rateLimitOf, rateLimits } from '../contract/limits.js';
import type { Role } from '../contract/roles.js';
import { type Log, reportOnce } from '../log.js';
import type { Redis } from '../redis/client.js';
import { shardOf } from '../redis/keys.js';
import { sharing } from '../wait.js';
import type { Deployment, Environment } from './documents.js';
import { type RegistrySnapshot, readChanges, readRegistry } from './registry.js';
import { hashSecret } from './secrets.js';

/** An environment as requests need it. */
export type LiveEnvironment = {
  readonly registryVersion: number;
  readonly appId: string;
  readonly accountId: string;
  readonly lenient: boolean;
  /** Whether the server endpoints accept records only with a write key. */
  readonly needsWriteKey: boolean;
  readonly hasWriteKey: boolean;
  /** Origins from which the client library's messages are accepted; undefined: any. */
  readonly origins: ReadonlySet<string> | undefined;
  readonly shard: number;
  /** This environment with the limits of imports, for requests whose token has this hash, until this time. */
  readonly imports?: {
    readonly hash: string;
    readonly untilMs: number;
    readonly environment: LiveEnvironment;
  };
  /** Identities that may identify users although they are generic words. */
  readonly allowedIdentities: ReadonlySet<string>;
  /** Undefined for a limit that is turned off. */
  readonly limits: Readonly<Record<LimitName, RateLimit | undefined>>;
};

/** A program that calls the administration. */
export type LiveProgram = { readonly id: string; readonly role: Role; readonly accountId: string };

export type Environments = {
  get(appId: string): LiveEnvironment | undefined;
  /**
   * The environment of an app_id that the copy lacks. The registry is read after this call, so an environment can be used as soon as it
   * was created. Reads are at least `refreshSpacingMs` apart and shared by all waiting callers, so unknown app_ids cost Redis almost
   * nothing.
   */
  find(appId: string): Promise<LiveEnvironment | undefined>;
  /** The environment of a write key, whether or not the environment requires one. */
  ofWriteKey(writeKey: string): LiveEnvironment | undefined;
  ofProgramKey(key: string): LiveProgram | undefined;
  /** The environment that a token with this hash may import into now, with the limits of imports. */
  ofImport(hash: string): LiveEnvironment | undefined;
  /** The deployment, once it was read from Redis. It stays available when Redis is emptied. */
  deployment(): Deployment | undefined;
  isLoaded(): boolean;
  /** Whether Redis answered the last read, and held the deployment. */
  isCurrent(): boolean;
  /** Calls a listener within half a second of a change of the registry or the end of a session. Returns a function that removes it. */
  onChange(listener: () => void): () => void;
  close(): void;
};

const pollEveryMs = 500;
const refreshSpacingMs = 50;
/** Environments that are made ready before other work gets its turn: about a millisecond. */
const environmentsPerTurn = 100;

/** Starts to follow the registry. Settles after the first attempt to read it, successful or not. */
export async function followEnvironments(redis: Redis, log: Log): Promise<Environments> {
  let environments = new Map<string, LiveEnvironment>();
  let byKeyHash = new Map<string, LiveEnvironment>();
  let byProgramHash = new Map<string, LiveProgram>();
  let byImportHash = new Map<string, NonNullable<LiveEnvironment['imports']>>();
  let deployment: Deployment | undefined;
  let version: string | undefined;
  let isLoaded = false;
  const faults = reportOnce(log, 'the registry cannot be read');
  let answers = false;
  const listeners = new Set<() => void>();
  let changes = '';

  async function refresh(): Promise<void> {
    const now = await readChanges(redis);
    if (!isLoaded || now.version !== version) await readCopy();
    // Listeners are called only now, since they read the copy.
    const seen = `${now.version} ${now.endings}`;
    if (seen !== changes) for (const listener of [...listeners]) listener();
    changes = seen;
  }

  async function readCopy(): Promise<void> {
    const snapshot = await readRegistry(redis);
    if (snapshot.deployment === undefined) {
      isLoaded = false;
      return;
    }
    const { shards } = snapshot.deployment;
    const registryVersion = Number(snapshot.version);
    const live = new Map<string, LiveEnvironment>();
    for (const batch of inBatches(snapshot.environments, environmentsPerTurn)) {
      for (const [appId, environment] of batch)
        live.set(
          appId,
          toLiveEnvironment(environment, shards, registryVersion, snapshot.writeKeys.has(appId)),
        );
      await nextTurn();
    }
    isLoaded = true;
    deployment = snapshot.deployment;
    environments = live;
    byKeyHash = byHash(snapshot, environments);
    byProgramHash = programsOf(snapshot);
    byImportHash = new Map(
      [...environments.values()].flatMap(({ imports }) =>
        imports === undefined ? [] : [[imports.hash, imports]],
      ),
    );
    version = snapshot.version;
  }

  /** Settles after a refresh that began after this call, successful or not. */
  const refreshAnew = sharing(async () => {
    try {
      await refresh();
      answers = true;
      faults.forget();
    } catch (error) {
      answers = false;
      faults.report(error);
    }
  }, refreshSpacingMs);

  await refreshAnew();
  const timer = setInterval(() => void refreshAnew(), pollEveryMs);
  return {
    get: (appId) => environments.get(appId),
    find: async (appId) => {
      await refreshAnew();
      return environments.get(appId);
    },
    ofWriteKey: (writeKey) => byKeyHash.get(hashSecret(writeKey)),
    ofProgramKey: (key) => byProgramHash.get(hashSecret(key)),
    ofImport: (hash) => {
      const found = byImportHash.get(hash);
      return found !== undefined && found.untilMs > Date.now() ? found.environment : undefined;
    },
    deployment: () => deployment,
    isLoaded: () => isLoaded,
    isCurrent: () => isLoaded && answers,
    onChange: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    close: () => clearInterval(timer),
  };
}

/** Callers cannot choose the hash of a key, so the time of a look-up reveals nothing about other keys. */
function byHash(
  { writeKeys }: RegistrySnapshot,
  environments: ReadonlyMap<string, LiveEnvironment>,
): Map<string, LiveEnvironment> {
  const found = new Map<string, LiveEnvironment>();
  for (const { app_id, keys } of writeKeys.values()) {
    const environment = environments.get(app_id);
    if (environment === undefined) continue;
    for (const { hash } of keys) found.set(hash, environment);
  }
  return found;
}

function programsOf({ programKeys }: RegistrySnapshot): Map<string, LiveProgram> {
  const all = [...programKeys.values()].flatMap(({ account_id: accountId = '', keys }) =>
    keys.map(({ hash, id, role }) => [hash, { id, role, accountId }] as const),
  );
  return new Map(all);
}

const limitNames = Object.keys(rateLimits) as readonly LimitName[];

function toLiveEnvironment(
  environment: Environment,
  shards: number,
  registryVersion: number,
  hasWriteKey: boolean,
): LiveEnvironment {
  const limit = (name: LimitName): RateLimit | undefined => {
    const value = environment.limits[name];
    if (value === 'none') return undefined;
    return value === undefined ? rateLimits[name] : rateLimitOf(name, value);
  };
  const live: LiveEnvironment = {
    registryVersion,
    appId: environment.app_id,
    accountId: environment.account_id,
    lenient: environment.validation === 'lenient',
    needsWriteKey: environment.write_key === 'required',
    hasWriteKey,
    origins: environment.origins === undefined ? undefined : new Set(environment.origins),
    shard: shardOf(environment.app_id, shards),
    allowedIdentities: new Set(environment.allowed_identities ?? []),
    limits: Object.fromEntries(limitNames.map((name) => [name, limit(name)])) as LiveEnvironment['limits'],
  };
  const { import_until: until, import_token_hash: hash } = environment;
  if (until === undefined || hash === undefined) return live;
  const lifted = {
    bulk_identity: undefined,
    bulk_app: undefined,
    app_records: undefined,
    app_bytes: undefined,
  };
  const limits = { ...live.limits, ...lifted };
  return { ...live, imports: { hash, untilMs: Date.parse(until), environment: { ...live, limits } } };
}
