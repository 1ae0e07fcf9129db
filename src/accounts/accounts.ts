// What administrators do with accounts and environments. Every function settles when the change is in Redis (so API processes see it within
// a second); ClickHouse follows within seconds.

import { randomBytes, randomInt } from 'node:crypto';
import type { AdministrationAnswers } from '../contract/administration-answers.js';
import { AdministrationError } from '../contract/errors.js';
import { administration, cases, type LimitName, lengths } from '../contract/limits.js';
import type { Role } from '../contract/roles.js';
import { readDayOrTime } from '../parsing/day-or-time.js';
import type { Redis } from '../redis/client.js';
import type { Account, Environment } from '../registry/documents.js';
import {
  accountNamed,
  type Change,
  changeRegistry,
  environmentNamed,
  environmentsOf,
  type RegistrySnapshot,
  readDocument,
  readRegistry,
} from '../registry/registry.js';
import { hashSecret, newSecret } from '../registry/secrets.js';

type AccountView = AdministrationAnswers['listAccounts'][number];

export type AccountSettings = AccountView['settings'];

type EnvironmentView = AccountView['environments'][number];

/** All accounts with their environments, the oldest first, or one. */
export async function listAccounts(redis: Redis, accountId?: string): Promise<AccountView[]> {
  const snapshot = await readRegistry(redis);
  return [...snapshot.accounts.values()]
    .filter((account) => accountId === undefined || account.account_id === accountId)
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
  checkEnvironmentCount(environmentNames.length);
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

/** Changes settings of an account; the others stay. */
export async function setAccount(
  redis: Redis,
  accountId: string,
  settings: Partial<AccountSettings>,
): Promise<AccountSettings & { readonly account_id: string }> {
  return changeRegistry(redis, (snapshot) => {
    const before = accountNamed(snapshot, accountId);
    const { confirm_from: _, second_factor: __, ...others } = before;
    const after = { ...settingsOf(before), ...settings };
    const document: Account = {
      ...others,
      due_days: after.due_days,
      erase: after.erase,
      ...(after.confirm_from !== 'none' && { confirm_from: after.confirm_from }),
      ...(after.second_factor === 'required' && { second_factor: after.second_factor }),
    };
    return {
      changes: [{ key: `account:${accountId}`, document }],
      result: { account_id: accountId, ...settingsOf(document) },
    };
  });
}

/** Whether an account's deletions are erased at once. Throws StateNotLoaded when Redis was emptied. */
export async function erasesNow(redis: Redis, accountId: string): Promise<boolean> {
  return (await readDocument(redis, `account:${accountId}`))?.erase === 'now';
}

export async function addEnvironment(
  redis: Redis,
  accountId: string,
  name: string,
): Promise<EnvironmentView> {
  return changeRegistry(redis, (snapshot) => {
    accountNamed(snapshot, accountId);
    const own = environmentsOf(snapshot, accountId);
    if (own.some((other) => other.name === name))
      throw new AdministrationError(`the account already has an environment ${name}`);
    checkEnvironmentCount(own.length + 1);
    const environment = newEnvironment(snapshot.environments, accountId, name, false);
    const changes = [environmentChange(environment)];
    checkSize(snapshot, accountId, changes);
    return { changes, result: viewEnvironment(environment) };
  });
}

export type EnvironmentSettings = {
  /** Makes it the Main Production environment instead of the current one. */
  readonly main?: true;
  readonly validation?: Environment['validation'];
  readonly limits?: Partial<Record<LimitName, number | 'none' | 'default'>>;
  /** Identities to allow in addition to those already allowed. */
  readonly allowIdentities?: readonly string[];
  readonly disallowIdentities?: readonly string[];
  /** Replaces the list. */
  readonly origins?: 'any' | readonly string[];
  readonly writeKey?: NonNullable<Environment['write_key']>;
  /** Milliseconds since 1970, or `none`. */
  readonly importUntilMs?: number | 'none';
  readonly retainDays?: number | 'none';
};

/** An environment as it is shown after a change: without hashes, but with the token that the change has made. */
export type ChangedEnvironment = Omit<Environment, 'import_token_hash' | 'main_id'> & {
  readonly import_token?: string;
};

/** Changes settings of an environment; the others stay. Only this call returns a token for imports. */
export async function setEnvironment(
  redis: Redis,
  appId: string,
  settings: EnvironmentSettings,
): Promise<ChangedEnvironment> {
  const { importUntilMs } = settings;
  const importToken = typeof importUntilMs === 'number' ? newSecret('sli_') : undefined;
  return changeRegistry(redis, (snapshot) => {
    const before = environmentNamed(snapshot, appId);
    if (settings.writeKey === 'required' && before.write_key !== 'required') {
      if ((snapshot.writeKeys.get(appId)?.keys.length ?? 0) === 0)
        throw new AdministrationError(
          'the environment has no write key, so all servers would be refused: create one first, and give it to them',
        );
    }
    const limits = Object.entries({ ...before.limits, ...settings.limits });
    const becomesMain = settings.main === true && !before.main;
    const { validation = before.validation, writeKey = before.write_key } = settings;
    // JSON leaves out what is undefined.
    const after = {
      ...before,
      ...(becomesMain && { main: true, main_id: randomBytes(8).toString('hex') }),
      validation,
      write_key: writeKey,
      limits: Object.fromEntries(limits.filter(([, value]) => value !== 'default')),
      allowed_identities: allowedAfter(before.allowed_identities ?? [], settings),
      origins: settings.origins === 'any' ? undefined : (settings.origins ?? before.origins),
      retain_days: settings.retainDays === 'none' ? undefined : (settings.retainDays ?? before.retain_days),
      ...(importUntilMs !== undefined && {
        import_until: importToken && new Date(importUntilMs as number).toISOString(),
        import_token_hash: importToken && hashSecret(importToken),
      }),
    } as Environment;
    const changes = [environmentChange(after)];
    if (becomesMain) {
      const former = environmentsOf(snapshot, before.account_id).filter(({ main }) => main);
      changes.push(...former.map((other) => environmentChange({ ...other, main: false })));
    }
    // Only these two settings can take many bytes.
    if (settings.allowIdentities?.length || Array.isArray(settings.origins))
      checkSize(snapshot, before.account_id, changes);
    const { import_token_hash: _, main_id: __, ...shown } = after;
    return { changes, result: importToken === undefined ? shown : { ...shown, import_token: importToken } };
  });
}

/** The allowed identities after a change of settings. A list that is too long may still become shorter. */
function allowedAfter(
  before: readonly string[],
  { allowIdentities = [], disallowIdentities = [] }: EnvironmentSettings,
): string[] {
  for (const identity of allowIdentities) {
    if (identity === '' || [...identity].length > lengths.identityMax)
      throw new AdministrationError(`an identity to allow must have 1 to ${lengths.identityMax} characters`);
  }
  const disallowed = new Set(disallowIdentities);
  const after = [...new Set([...before, ...allowIdentities])].filter((identity) => !disallowed.has(identity));
  if (after.length > Math.max(before.length, administration.allowedIdentitiesMax))
    throw new AdministrationError(
      `an environment can allow ${administration.allowedIdentitiesMax} identities: disallow one first`,
    );
  return after;
}

/** An environment with its settings; never a hash. */
export async function showEnvironment(redis: Redis, appId: string): Promise<ChangedEnvironment> {
  const { import_token_hash: _, main_id: __, ...shown } = environmentNamed(await readRegistry(redis), appId);
  return shown;
}

/** Reads a date or a time as the end of an allowance for imports, or `none`. */
export function parseImportUntil(value: unknown): number | 'none' {
  if (value === 'none') return 'none';
  const nowMs = Date.now();
  const ms = typeof value === 'string' ? readDayOrTime(value) : undefined;
  if (ms === undefined || ms <= nowMs || ms > nowMs + administration.importMsMax) {
    const days = administration.importMsMax / (24 * 60 * 60 * 1000);
    throw new AdministrationError(
      `import_until must be none, or a date such as 2026-03-01 or a time with offset, at most ${days} days ahead`,
    );
  }
  return ms;
}

/** Refuses an operator of an account, and other roles without one. `who`: a person or a program. */
export function checkBelonging(who: string, role: Role, accountId: string | undefined): void {
  if (role === 'operator' && accountId !== undefined)
    throw new AdministrationError('operators do not belong to an account');
  if (role !== 'operator' && accountId === undefined)
    throw new AdministrationError(`a ${who} with the role ${role} needs an account`);
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
  if (name.trim() === '' || name.length > administration.nameMax)
    throw new AdministrationError(`a name must have 1 to ${administration.nameMax} characters`);
}

function checkEnvironmentCount(count: number): void {
  const { environmentsPerAccountMax } = administration;
  if (count > environmentsPerAccountMax)
    throw new AdministrationError(`an account can have ${environmentsPerAccountMax} environments`);
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

/** The oldest first, then by name. */
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
    settings: settingsOf(account),
  };
}

export function settingsOf({ due_days, erase, confirm_from, second_factor }: Account): AccountSettings {
  return {
    due_days: due_days ?? cases.dueDays,
    erase: erase ?? 'together',
    confirm_from: confirm_from ?? 'none',
    second_factor: second_factor ?? 'optional',
  };
}

function viewEnvironment({ app_id, name, main }: Environment): EnvironmentView {
  return { app_id, name, main };
}

/**
 * Refuses changes that make an account's documents grow above their bound: every API process reads all of the registry again after each
 * change, so a large account would slow down the requests of all others. An account above the bound keeps what it has.
 */
export function checkSize(snapshot: RegistrySnapshot, accountId: string, changes: readonly Change[]): void {
  const documents = documentsOf(snapshot, accountId);
  const growth = changes.reduce(
    (sum, { key, document }) => sum + bytesOf(document) - bytesOf(documents.get(key)),
    0,
  );
  if (growth <= 0) return;
  const before = [...documents.values()].reduce<number>((sum, document) => sum + bytesOf(document), 0);
  if (before + growth > administration.accountBytesMax)
    throw new AdministrationError(
      `the environments, settings and keys of an account can take ${administration.accountBytesMax / 2 ** 20} MiB: remove some first`,
    );
}

/** The documents of an account, by their keys; without its people, whose number is limited. */
function documentsOf(snapshot: RegistrySnapshot, accountId: string): Map<string, object | undefined> {
  const { accounts, apiKeys, writeKeys, programKeys, callbacks } = snapshot;
  return new Map<string, object | undefined>([
    [`account:${accountId}`, accounts.get(accountId)],
    [`callback:${accountId}`, callbacks.get(accountId)],
    [`program_keys:${accountId}`, programKeys.get(accountId)],
    ...environmentsOf(snapshot, accountId).flatMap((environment): [string, object | undefined][] => {
      const { app_id } = environment;
      return [
        [`environment:${app_id}`, environment],
        [`api_key:${app_id}`, apiKeys.get(app_id)],
        [`write_keys:${app_id}`, writeKeys.get(app_id)],
      ];
    }),
  ]);
}

function bytesOf(document: object | undefined): number {
  return document === undefined ? 0 : Buffer.byteLength(JSON.stringify(document));
}
