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
  readonly imports?: Imports;
  /** Identities that may identify users although they are generic words. */
  readonly allowedIdentities: ReadonlySet<string>;
  /** Undefined for a limit that is turned off. */
  readonly limits: Readonly<Record<LimitName, RateLimit | undefined>>;
};

type Imports = { readonly hash: string; readonly untilMs: number; readonly environment: LiveEnvironment };

/** A program that calls the administration. */
export type LiveProgram = { readonly id: string; readonly role: Role; readonly accountId: string };

export type Environments = Awaited<ReturnType<typeof followEnvironments>>;

const pollEveryMs = 500;
const refreshSpacingMs = 50;
/** Environments that are made ready before other work gets its turn: about a millisecond. */
const environmentsPerTurn = 100;

/** What the copy is made of; empty until the registry was read. */
const nothing = {
  version: undefined as string | undefined,
  deployment: undefined as Deployment | undefined,
  environments: new Map<string, LiveEnvironment>() as ReadonlyMap<string, LiveEnvironment>,
  byWriteKey: new Map<string, LiveEnvironment>() as ReadonlyMap<string, LiveEnvironment>,
  byProgramKey: new Map<string, LiveProgram>() as ReadonlyMap<string, LiveProgram>,
  byImport: new Map<string, Imports>() as ReadonlyMap<string, Imports>,
};

/** Starts to follow the registry. Settles after the first attempt to read it, successful or not. */
export async function followEnvironments(redis: Redis, log: Log) {
  let copy = nothing;
  let isLoaded = false;
  const faults = reportOnce(log, 'the registry cannot be read');
  let answers = false;
  const listeners = new Set<() => void>();
  let changes = '';

  async function refresh(): Promise<void> {
    const now = await readChanges(redis);
    if (!isLoaded || now.version !== copy.version) {
      const read = await copyOf(await readRegistry(redis));
      isLoaded = read !== undefined;
      copy = read ?? copy;
    }
    // Listeners are called only now, since they read the copy.
    const seen = `${now.version} ${now.endings}`;
    if (seen !== changes) for (const listener of [...listeners]) listener();
    changes = seen;
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
    get: (appId: string) => copy.environments.get(appId),
    /**
     * The environment of an app_id that the copy lacks. The registry is read after this call, so an environment can be used as soon as it
     * was created. Reads are at least `refreshSpacingMs` apart and shared by all waiting callers, so unknown app_ids cost Redis almost
     * nothing.
     */
    find: async (appId: string) => {
      await refreshAnew();
      return copy.environments.get(appId);
    },
    /** The environment of a write key, whether or not the environment requires one. */
    ofWriteKey: (writeKey: string) => copy.byWriteKey.get(hashSecret(writeKey)),
    ofProgramKey: (key: string) => copy.byProgramKey.get(hashSecret(key)),
    /** The environment that a token with this hash may import into now, with the limits of imports. */
    ofImport: (hash: string) => {
      const found = copy.byImport.get(hash);
      return found !== undefined && found.untilMs > Date.now() ? found.environment : undefined;
    },
    /** The deployment, once it was read from Redis. It stays available when Redis is emptied. */
    deployment: () => copy.deployment,
    isLoaded: () => isLoaded,
    /** Whether Redis answered the last read, and held the deployment. */
    isCurrent: () => isLoaded && answers,
    /** Calls a listener within half a second of a change of the registry or the end of a session. Returns a function that removes it. */
    onChange: (listener: () => void) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    close: () => clearInterval(timer),
  };
}

/**
 * Undefined if Redis does not hold the deployment. Keys are found by their hashes, which callers cannot choose, so the time of a look-up
 * reveals nothing about other keys.
 */
async function copyOf(snapshot: RegistrySnapshot): Promise<typeof nothing | undefined> {
  const { version, deployment, writeKeys, programKeys } = snapshot;
  if (deployment === undefined) return undefined;
  const environments = new Map<string, LiveEnvironment>();
  for (const batch of inBatches(snapshot.environments, environmentsPerTurn)) {
    for (const [appId, environment] of batch) {
      const live = toLiveEnvironment(environment, deployment.shards, Number(version), writeKeys.has(appId));
      environments.set(appId, live);
    }
    await nextTurn();
  }
  const byWriteKey = [...writeKeys.values()].flatMap(({ app_id, keys }) => {
    const environment = environments.get(app_id);
    return environment === undefined ? [] : keys.map(({ hash }) => [hash, environment] as const);
  });
  const byProgramKey = [...programKeys.values()].flatMap(({ account_id: accountId = '', keys }) =>
    keys.map(({ hash, id, role }) => [hash, { id, role, accountId }] as const),
  );
  const byImport = [...environments.values()].flatMap(({ imports }) =>
    imports === undefined ? [] : [[imports.hash, imports] as const],
  );
  return {
    version,
    deployment,
    environments,
    byWriteKey: new Map(byWriteKey),
    byProgramKey: new Map(byProgramKey),
    byImport: new Map(byImport),
  };
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
