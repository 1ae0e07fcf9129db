// What administrators do with accounts, environments and API keys. Every function settles when the change is
// in Redis (so API processes see it within a second); ClickHouse follows within seconds.

import { createHash, randomBytes, randomInt } from 'node:crypto';
import { type LimitName, rateLimits } from '../contract/limits.js';
import type { Redis } from '../redis/client.js';
import type { Account, ApiKey, Environment } from './documents.js';
import { type Change, changeRegistry, type RegistrySnapshot, readRegistry } from './registry.js';

/** A request of an administrator that cannot be fulfilled; the message is for them. */
export class AdministrationError extends Error {}

export type AccountView = {
  readonly account_id: string;
  readonly name: string;
  readonly environments: EnvironmentView[];
};

export type EnvironmentView = { readonly app_id: string; readonly name: string; readonly main: boolean };

/** All accounts with their environments, the oldest first. */
export async function listAccounts(redis: Redis): Promise<AccountView[]> {
  const snapshot = await readRegistry(redis);
  return [...snapshot.accounts.values()]
    .sort(byAge)
    .map((account) => viewAccount(account, [...snapshot.environments.values()]));
}

/** Creates an account; the first of the named environments is its Main Production environment. */
export async function createAccount(
  redis: Redis,
  name: string,
  environmentNames: readonly string[],
): Promise<AccountView> {
  checkName(name);
  if (environmentNames.length === 0)
    throw new AdministrationError('an account needs at least one environment');
  if (new Set(environmentNames).size < environmentNames.length) {
    throw new AdministrationError('two environments of an account cannot have the same name');
  }
  return changeRegistry(redis, (snapshot) => {
    const now = new Date().toISOString();
    const account: Account = { account_id: unusedId(snapshot.accounts), name, created_at: now };
    const taken = new Map(snapshot.environments);
    const environments = environmentNames.map((environmentName, index) => {
      const environment = newEnvironment(taken, account.account_id, environmentName, index === 0);
      taken.set(environment.app_id, environment);
      return environment;
    });
    return {
      changes: [
        { key: `account:${account.account_id}`, document: account },
        ...environments.map(environmentChange),
      ],
      result: viewAccount(account, environments),
    };
  });
}

/** Adds an environment to an account. */
export async function addEnvironment(
  redis: Redis,
  accountId: string,
  name: string,
): Promise<EnvironmentView> {
  return changeRegistry(redis, (snapshot) => {
    if (!snapshot.accounts.has(accountId)) throw new AdministrationError(`there is no account ${accountId}`);
    for (const other of snapshot.environments.values()) {
      if (other.account_id === accountId && other.name === name) {
        throw new AdministrationError(`the account has an environment ${name} already`);
      }
    }
    const environment = newEnvironment(snapshot.environments, accountId, name, false);
    return { changes: [environmentChange(environment)], result: viewEnvironment(environment) };
  });
}

export type EnvironmentSettings = {
  /** Makes it the Main Production environment; the one that was is no longer. */
  readonly main?: true;
  readonly validation?: 'strict' | 'lenient';
  readonly limits?: Partial<Record<LimitName, number | 'none' | 'default'>>;
  /** Added to those that were allowed before. */
  readonly allowIdentities?: readonly string[];
};

/** Changes an environment's settings; what is not named stays. */
export async function setEnvironment(
  redis: Redis,
  appId: string,
  settings: EnvironmentSettings,
): Promise<Environment> {
  return changeRegistry(redis, (snapshot) => {
    const before = environmentOf(snapshot, appId);
    const limits = { ...before.limits };
    for (const [name, value] of Object.entries(settings.limits ?? {}) as [
      LimitName,
      number | 'none' | 'default',
    ][]) {
      if (value === 'default') delete limits[name];
      else limits[name] = value;
    }
    const after: Environment = {
      ...before,
      limits,
      allowed_identities: [
        ...new Set([...(before.allowed_identities ?? []), ...(settings.allowIdentities ?? [])]),
      ],
      ...(settings.validation === undefined ? {} : { validation: settings.validation }),
      ...(settings.main === undefined ? {} : { main: true }),
    };
    const changes = [environmentChange(after)];
    if (settings.main && !before.main) {
      for (const other of snapshot.environments.values()) {
        if (other.account_id === before.account_id && other.main) {
          changes.push(environmentChange({ ...other, main: false }));
        }
      }
    }
    return { changes, result: after };
  });
}

/** Reads `none`, `default` or a whole number as the value of a limit. */
export function parseLimit(name: string, value: string): [LimitName, number | 'none' | 'default'] {
  if (!Object.hasOwn(rateLimits, name)) {
    throw new AdministrationError(
      `there is no limit ${name}; the limits are ${Object.keys(rateLimits).join(', ')}`,
    );
  }
  if (value === 'none' || value === 'default') return [name as LimitName, value];
  const max = Number(value);
  if (!/^\d+$/.test(value) || max < 1 || max > 1_000_000_000) {
    throw new AdministrationError(`the limit ${name} must be none, default, or a whole number above 0`);
  }
  return [name as LimitName, max];
}

/** Creates the environment's API key when it has none; the key itself is returned only here. */
export async function createApiKey(
  redis: Redis,
  appId: string,
): Promise<{ app_id: string; api_key: string }> {
  return writeApiKey(redis, appId, (existing) => {
    if (existing !== undefined) throw new AdministrationError(`${appId} has an API key; use keys rotate`);
  });
}

/** Replaces the environment's API key; the old one and its tokens end at once. */
export async function rotateApiKey(
  redis: Redis,
  appId: string,
): Promise<{ app_id: string; api_key: string }> {
  return writeApiKey(redis, appId, (existing) => {
    if (existing === undefined) throw new AdministrationError(`${appId} has no API key; use keys create`);
  });
}

/** Takes the environment's API key away. */
export async function revokeApiKey(
  redis: Redis,
  appId: string,
): Promise<{ app_id: string; revoked: boolean }> {
  return changeRegistry(redis, (snapshot) => {
    environmentOf(snapshot, appId);
    const revoked = snapshot.apiKeys.has(appId);
    return {
      changes: revoked ? [{ key: `api_key:${appId}`, document: undefined }] : [],
      result: { app_id: appId, revoked },
    };
  });
}

/** When the environment's API key was created; never the key. */
export async function showApiKey(
  redis: Redis,
  appId: string,
): Promise<{ app_id: string; created_at: string | null }> {
  const snapshot = await readRegistry(redis);
  environmentOf(snapshot, appId);
  return { app_id: appId, created_at: snapshot.apiKeys.get(appId)?.created_at ?? null };
}

export function hashApiKey(apiKey: string): string {
  return createHash('sha256').update(apiKey).digest('hex');
}

async function writeApiKey(
  redis: Redis,
  appId: string,
  check: (existing: ApiKey | undefined) => void,
): Promise<{ app_id: string; api_key: string }> {
  const apiKey = `slk_${randomBytes(32).toString('base64url')}`;
  return changeRegistry(redis, (snapshot) => {
    environmentOf(snapshot, appId);
    check(snapshot.apiKeys.get(appId));
    const document: ApiKey = {
      app_id: appId,
      hash: hashApiKey(apiKey),
      created_at: new Date().toISOString(),
    };
    return {
      changes: [{ key: `api_key:${appId}`, document }],
      result: { app_id: appId, api_key: apiKey },
    };
  });
}

function environmentOf(snapshot: RegistrySnapshot, appId: string): Environment {
  const environment = snapshot.environments.get(appId);
  if (environment === undefined) throw new AdministrationError(`there is no environment ${appId}`);
  return environment;
}

function newEnvironment(
  taken: ReadonlyMap<string, unknown>,
  accountId: string,
  name: string,
  main: boolean,
): Environment {
  checkName(name);
  return {
    app_id: unusedId(taken),
    account_id: accountId,
    name,
    main,
    validation: 'strict',
    limits: {},
    created_at: new Date().toISOString(),
  };
}

function checkName(name: string): void {
  if (name.trim() === '' || name.length > 200)
    throw new AdministrationError('a name must have 1 to 200 characters');
}

/** A random ten-digit decimal string that is not a key of `taken`. */
function unusedId(taken: ReadonlyMap<string, unknown>): string {
  for (;;) {
    const id = String(randomInt(1_000_000_000, 10_000_000_000));
    if (!taken.has(id)) return id;
  }
}

function environmentChange(environment: Environment): Change {
  return { key: `environment:${environment.app_id}`, document: environment };
}

type Aged = { readonly created_at: string; readonly name: string };

/** The oldest first; by name what is equally old. */
function byAge(a: Aged, b: Aged): number {
  return a.created_at.localeCompare(b.created_at) || a.name.localeCompare(b.name);
}

function viewAccount(account: Account, environments: readonly Environment[]): AccountView {
  return {
    account_id: account.account_id,
    name: account.name,
    environments: environments
      .filter((environment) => environment.account_id === account.account_id)
      .sort((a, b) => Number(b.main) - Number(a.main) || byAge(a, b))
      .map(viewEnvironment),
  };
}

function viewEnvironment({ app_id, name, main }: Environment): EnvironmentView {
  return { app_id, name, main };
}
