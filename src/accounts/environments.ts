// What an API process knows of the environments: a copy of the registry in memory, brought up to date once a
// second and, for an app_id that it does not know, at once. Serves from the copy while Redis is away; the
// commit script decides whether anything is accepted.

import { type LimitName, type RateLimit, rateLimits } from '../contract/limits.js';
import { describeError, type Log } from '../log.js';
import type { Redis } from '../redis/client.js';
import { shardOf } from '../redis/keys.js';
import type { Deployment, Environment } from './documents.js';
import { readRegistry, readVersion } from './registry.js';

/** An environment as requests need it. */
export type LiveEnvironment = {
  readonly appId: string;
  readonly accountId: string;
  readonly lenient: boolean;
  readonly shard: number;
  /** Identities that may identify users although they look like words for nobody. */
  readonly allowedIdentities: ReadonlySet<string>;
  /** A limit that is switched off is undefined. */
  readonly limits: Readonly<Record<LimitName, RateLimit | undefined>>;
};

export type Environments = {
  /** The environment of an app_id in the copy. */
  get(appId: string): LiveEnvironment | undefined;
  /**
   * The environment of an app_id that the copy lacks: looks whether the registry has it by now. At most one
   * look at a time and `lookEveryMs` apart, so that unknown app_ids cost Redis nothing worth counting.
   */
  find(appId: string): Promise<LiveEnvironment | undefined>;
  /** The deployment, once Redis has told it; stays known when Redis is emptied. */
  deployment(): Deployment | undefined;
  /** Whether Redis held the deployment when it was last asked. */
  loaded(): boolean;
  /** Whether Redis answered when it was last asked, and held the deployment. */
  current(): boolean;
  close(): void;
};

const pollEveryMs = 500;
const lookEveryMs = 50;

/** Starts to follow the registry. Settles after the first attempt to read it, successful or not. */
export async function followEnvironments(redis: Redis, log: Log): Promise<Environments> {
  let environments = new Map<string, LiveEnvironment>();
  let deployment: Deployment | undefined;
  let version: string | undefined;
  let isLoaded = false;
  let look: Promise<void> | undefined;
  let lookedMs = Number.NEGATIVE_INFINITY;
  let reported = '';
  let answers = false;

  async function refresh(): Promise<void> {
    lookedMs = performance.now();
    if (isLoaded && (await readVersion(redis)) === version) return;
    const snapshot = await readRegistry(redis);
    isLoaded = snapshot.deployment !== undefined;
    if (snapshot.deployment === undefined) return;
    deployment = snapshot.deployment;
    const { shards } = deployment;
    environments = new Map(
      [...snapshot.environments].map(([appId, environment]) => [appId, liven(environment, shards)]),
    );
    version = snapshot.version;
  }

  function refreshOnce(): Promise<void> {
    look ??= refresh()
      .then(() => {
        answers = true;
        reported = '';
      })
      .catch((error: unknown) => {
        answers = false;
        const described = describeError(error);
        if (described.message !== reported) log.warn({ error: described }, 'the registry cannot be read');
        reported = described.message;
      })
      .finally(() => {
        look = undefined;
      });
    return look;
  }

  await refreshOnce();
  const timer = setInterval(() => void refreshOnce(), pollEveryMs);
  return {
    get: (appId) => environments.get(appId),
    find: async (appId) => {
      if (performance.now() - lookedMs >= lookEveryMs || look !== undefined) await refreshOnce();
      return environments.get(appId);
    },
    deployment: () => deployment,
    loaded: () => isLoaded,
    current: () => isLoaded && answers,
    close: () => clearInterval(timer),
  };
}

function liven(environment: Environment, shards: number): LiveEnvironment {
  const limit = (name: LimitName): RateLimit | undefined => {
    const value = environment.limits[name];
    if (value === 'none') return undefined;
    return value === undefined ? rateLimits[name] : { ...rateLimits[name], max: value };
  };
  return {
    appId: environment.app_id,
    accountId: environment.account_id,
    lenient: environment.validation === 'lenient',
    shard: shardOf(environment.app_id, shards),
    allowedIdentities: new Set(environment.allowed_identities ?? []),
    limits: {
      track: limit('track'),
      user_properties: limit('user_properties'),
      bulk_identity: limit('bulk_identity'),
      bulk_app: limit('bulk_app'),
    },
  };
}
