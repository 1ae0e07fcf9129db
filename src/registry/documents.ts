// The documents of the registry: deployment, accounts, environments and their keys. They live in Redis and, within
// seconds, in ClickHouse (see outbox.ts). Field names are snake_case, as they are printed to administrators.

import type { LimitName } from '../contract/limits.js';
import type { Role } from '../contract/roles.js';

export type Deployment = {
  /** Random. A Redis without it does not belong to this deployment. */
  readonly epoch: string;
  /** The key of keyed hashes: of users in the logs of rate limits, and of addresses. */
  readonly secret: string;
  readonly shards: number;
  readonly created_at: string;
};

/** For each shard the ClickHouse server that has its rows, by its index in CLICKHOUSE_URL, from 0. */
export type ShardServers = {
  readonly servers: readonly number[];
  /** The moves of shards to other servers that have not ended. */
  readonly moves?: readonly ShardMove[];
  /** How many moves have ended: if it is unchanged, no shard was moved meanwhile. */
  readonly moved?: number;
};

export type ShardMove = {
  readonly shard: number;
  readonly from: number;
  readonly to: number;
  /**
   * `copy`: the rows are on `from`. `remove`: they are on `to`, and those on `from` must be removed. `back`: the move is reverted; the
   * rows are on `from`, and the copies must be removed.
   */
  readonly stage: 'copy' | 'remove' | 'back';
  /** The process that started the move or last continued it: only its statements take effect. */
  readonly owner: string;
  /** The same as `owner`, until that process has changed something on a server. */
  readonly unchanged_by?: string;
  readonly began_at: string;
};

export type Account = {
  readonly account_id: string;
  readonly name: string;
  readonly created_at: string;
  /** How many days after it was received a case is due; without this field 30. */
  readonly due_days?: number;
  /** `now`: its deletions have their rows erased at once, as often as an account may ask for that. */
  readonly erase?: 'now' | 'together';
  /** The number of users from which on a second person has to confirm a deletion; without this field never. */
  readonly confirm_from?: number;
  /** Whether its people need a second factor, unless a provider vouches for them. */
  readonly second_factor?: 'required';
};

export type Environment = {
  /** A decimal string, unique over the deployment. */
  readonly app_id: string;
  readonly account_id: string;
  readonly name: string;
  /** Whether it is the account's Main Production environment; exactly one is. */
  readonly main: boolean;
  /** New each time the environment becomes main again, so that its former tokens stay invalid. Missing until then. */
  readonly main_id?: string;
  readonly validation: 'strict' | 'lenient';
  /** Only limits that differ from the defaults; `none` turns a limit off. */
  readonly limits: Partial<Record<LimitName, number | 'none'>>;
  /** Identities that `identify` accepts although they are generic words. */
  readonly allowed_identities?: readonly string[];
  /** Origins from which `/api/collect` accepts messages; without this field, any. */
  readonly origins?: readonly string[];
  /** Whether the server endpoints require a write key; without this field they do not. */
  readonly write_key?: 'required' | 'optional';
  /** For how many days events, and users without newer events, are retained; without this field for ever. */
  readonly retain_days?: number;
  /** Until when imports are exempt from the limits of bulk requests, and the hash of their token. */
  readonly import_until?: string;
  readonly import_token_hash?: string;
  readonly created_at: string;
};

export type EnvironmentKeys = {
  readonly app_id: string;
  /** The oldest first; API keys may have expired. */
  readonly keys: readonly Key[];
};

/** When a key was last used. It is copied like all documents, but its changes do not raise the version of the registry. */
export type KeyUse = { readonly used_at: string };
/** A backup of ClickHouse, made by `npm run admin -- backup create`. */
export type Backup = {
  readonly name: string;
  readonly began_at: string;
  /** Missing while the backup is being made, and for ever if that was interrupted. */
  readonly ended_at?: string;
  /** Its size on disk; with a base only what has changed since. */
  readonly bytes?: number;
  /** With several servers: how many moves of shards had ended when it began. */
  readonly moved?: number;
  /** Identifies the tables of all servers that it contains: a restore exchanges them for others. */
  readonly tables?: string;
  /** Until then a restore of this backup can repeat the deletions that were completed since it began. */
  readonly keep_until: string;
};

/** The deployment's key for signatures (Ed25519), both halves in PEM. */
export type SigningKey = {
  /** The first digits of the public half's hash. */
  readonly key_id: string;
  readonly public_key: string;
  readonly private_key: string;
  readonly created_at: string;
};

/** The URL that is called when a deletion of an account is complete. */
export type Callback = {
  readonly account_id: string;
  readonly url: string;
  /** The key of the signatures, which the receiver has too. */
  readonly secret: string;
  readonly created_at: string;
};

export type Key = {
  /** Its name for administrators; unique within its environment. */
  readonly id: string;
  /** Chosen by an administrator; may be empty. */
  readonly name: string;
  /** SHA-256 of the secret in hexadecimal digits. */
  readonly hash: string;
  readonly created_at: string;
  /** The key expires then, by Redis's clock; without this field it does not expire. */
  readonly expires_at?: string;
};

/** A key of a program that calls the administration, with the rights of a role. */
export type ProgramKey = Key & { readonly role: Role };

/** The program keys of an account; without `account_id`, of operators. */
export type ProgramKeys = {
  readonly account_id?: string;
  /** The oldest first. */
  readonly keys: readonly ProgramKey[];
};

/** People who had access to an account and were removed: hashes of their email addresses, the latest last. */
export type FormerPeople = { readonly account_id: string; readonly person_ids: readonly string[] };

/** A person who may sign in to the console. */
export type Person = {
  /** A hash of the email address. While they are only invited, a hash of address and account, so that several accounts can invite them. */
  readonly person_id: string;
  /** The id that they had while invited: a page that was loaded then still uses it. */
  readonly invited_as?: string;
  /** In lower case. In the whole deployment at most one person has access under it. */
  readonly email: string;
  readonly role: Role;
  /** Missing for operators. */
  readonly account_id?: string;
  readonly created_at: string;
  /** Missing until the first invitation is accepted, and for people who sign in by the provider. */
  readonly password?: Password;
  /** The provider that vouches for the person, instead of a password. */
  readonly provider?: {
    readonly issuer: string;
    readonly subject: string;
    /** Changes with the role that the provider gave, so that another role ends the sessions. */
    readonly id: string;
  };
  /** Its secret allows choosing a new password, once. */
  readonly invitation?: { readonly hash: string; readonly ends_at: string };
  readonly second_factor?: SecondFactor;
};

export type Password = {
  /** Random; changes with the password, which ends sessions of the former one. */
  readonly id: string;
  /** Argon2id, in the form of the PHC. */
  readonly hash: string;
  readonly set_at: string;
};

export type SecondFactor = {
  /** In base 32. */
  readonly secret: string;
  /** The number of the last code that was used. It and earlier codes are no longer accepted. */
  readonly last_code: number;
};

/** What a document of each kind is. */
export type Documents = {
  deployment: Deployment;
  account: Account;
  environment: Environment;
  api_key: EnvironmentKeys;
  key_use: KeyUse;
  write_keys: EnvironmentKeys;
  program_keys: ProgramKeys;
  backups: readonly Backup[];
  signing_key: SigningKey;
  callback: Callback;
  shard_servers: ShardServers;
  person: Person;
  former_people: FormerPeople;
};

/** "<kind>:<id>" */
export type DocumentKey = KeyOf<keyof Documents>;

export type KeyOf<Kind extends keyof Documents> = `${Kind}:${string}`;

export const deploymentKey = 'deployment:' as const;

export const backupsKey = 'backups:' as const;

export const signingKeyKey = 'signing_key:' as const;

/** Missing while CLICKHOUSE_URL has never named more than one server. */
export const shardServersKey = 'shard_servers:' as const;
