// The documents of the registry: deployment, accounts, environments and their keys. They live in Redis and, within
// seconds, in ClickHouse (see mirror.ts). Field names are snake_case, as they are printed to administrators.

import type { LimitName } from '../contract/limits.js';
import type { Role } from '../contract/roles.js';

export type Deployment = {
  /** Random. A Redis without it does not belong to this deployment. */
  readonly epoch: string;
  /** The key of hashes in Redis: of users in the logs of rate limits, and of addresses. */
  readonly secret: string;
  readonly shards: number;
  readonly created_at: string;
};

/** For each shard the ClickHouse server that has its rows, by its place in CLICKHOUSE_URL, from 0. */
export type ShardServers = {
  readonly servers: readonly number[];
  /** Shards that are on their way to another server. */
  readonly moves?: readonly ShardMove[];
  /** How many moves have ended: who reads the same number twice knows that there was none. */
  readonly moved?: number;
};

export type ShardMove = {
  readonly shard: number;
  readonly from: number;
  readonly to: number;
  /**
   * `copy`: the rows are at `from`. `remove`: they are at `to`, and those at `from` have to go. `back`: the move is taken back;
   * the rows are at `from`, and what was copied has to go.
   */
  readonly stage: 'copy' | 'remove' | 'back';
  /** Whose statements count: the process that began the move, or went on with it. */
  readonly owner: string;
  /** The owner, until it changes anything on a server. */
  readonly unchanged_by?: string;
  readonly began_at: string;
};

export type Account = {
  readonly account_id: string;
  readonly name: string;
  readonly created_at: string;
  /** How many days after it was received a case is due; without this field 30. */
  readonly due_days?: number;
  /** Its deletions ask by themselves for their rows to be erased at once, as often as an account may. */
  readonly erase?: 'now' | 'together';
  /** From how many users on a second person has to confirm a deletion; without this field none has. */
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
  /** Another one each time that it becomes main again: tokens of before have ended for good. Missing until then. */
  readonly main_id?: string;
  readonly validation: 'strict' | 'lenient';
  /** Only limits that differ from the defaults; `none` turns a limit off. */
  readonly limits: Partial<Record<LimitName, number | 'none'>>;
  /** Identities that `identify` accepts although they are generic words. */
  readonly allowed_identities?: readonly string[];
  /** Origins that `/api/collect` takes messages from; without this field, any. */
  readonly origins?: readonly string[];
  /** Whether the server endpoints want a write key; without this field they do not. */
  readonly write_key?: 'required' | 'optional';
  /** For how many days events are retained, and users without events since; without this field for ever. */
  readonly retain_days?: number;
  /** Until when imports pass the limits of bulk requests, and the hash of the token that they carry. */
  readonly import_until?: string;
  readonly import_token_hash?: string;
  readonly created_at: string;
};

export type ApiKeys = {
  readonly app_id: string;
  /** The oldest first, some perhaps expired. */
  readonly keys: readonly Key[];
};

/** When a key was last used. It is copied like all documents, but a change of it does not make a new version of the registry. */
export type KeyUse = { readonly used_at: string };
/** A backup of ClickHouse, made by `npm run admin -- backup create`. */
export type Backup = {
  readonly name: string;
  readonly began_at: string;
  /** Missing while the backup is made, and for ever if that was cut off. */
  readonly ended_at?: string;
  /** On disk; with a base only what has changed since that. */
  readonly bytes?: number;
  /** Of several servers: how many moves of shards had ended when it began. */
  readonly moved?: number;
  /** Which tables it is of, of all servers: the exchange of a restore gives the database others. */
  readonly tables?: string;
  /** Until then a restore of this backup can repeat the deletions that completed since. */
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

/** Where an account is called when a deletion is complete. */
export type Callback = {
  readonly account_id: string;
  readonly url: string;
  /** The key of the signatures: the receiver has it too. */
  readonly secret: string;
  readonly created_at: string;
};

/** A key of an environment. */
export type Key = {
  /** Names it for administrators; unique within its environment. */
  readonly id: string;
  /** Chosen by an administrator; may be empty. */
  readonly name: string;
  /** SHA-256 of the secret in hexadecimal digits. */
  readonly hash: string;
  readonly created_at: string;
  /** The key expires then, by Redis's clock; without this field it does not expire. */
  readonly expires_at?: string;
};

export type WriteKeys = {
  readonly app_id: string;
  /** The oldest first. */
  readonly keys: readonly Key[];
};

/** A key of a program that calls the administration, with the rights of a role. */
export type ProgramKey = Key & { readonly role: Role };

/** Those of an account; without one, of operators. */
export type ProgramKeys = {
  readonly account_id?: string;
  /** The oldest first. */
  readonly keys: readonly ProgramKey[];
};

/** Who had access to an account and was removed: hashes of their addresses, the latest last. */
export type FormerPeople = { readonly account_id: string; readonly person_ids: readonly string[] };

/** Who may sign in to the console. */
export type Person = {
  /** Of their address; of somebody who has never had access of address and account, so that several accounts can invite it. */
  readonly person_id: string;
  /** The id that they had while invited: a page that was loaded then names them by it. */
  readonly invited_as?: string;
  /** In lower case. One person at most has access by it, in the whole deployment. */
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
    /** Belongs to the role that the provider gave: another role ends the sessions. */
    readonly id: string;
  };
  /** Its secret allows choosing a new password, once. */
  readonly invitation?: { readonly hash: string; readonly ends_at: string };
  readonly second_factor?: SecondFactor;
};

export type Password = {
  /** Random; changes with the password, and ends what was made under the former one. */
  readonly id: string;
  /** Argon2id, in the form of the PHC. */
  readonly hash: string;
  readonly set_at: string;
};

export type SecondFactor = {
  /** In base 32. */
  readonly secret: string;
  /** The number of the last code that was used. It and earlier ones are no longer good. */
  readonly last_code: number;
};

export type DocumentKind =
  | 'deployment'
  | 'account'
  | 'environment'
  | 'api_key'
  | 'key_use'
  | 'write_keys'
  | 'program_keys'
  | 'backups'
  | 'signing_key'
  | 'callback'
  | 'shard_servers'
  | 'person'
  | 'former_people';

/** "<kind>:<id>" */
export type DocumentKey = `${DocumentKind}:${string}`;

export const deploymentKey: DocumentKey = 'deployment:';

/** The list of backups. */
export const backupsKey: DocumentKey = 'backups:';

export const signingKeyKey: DocumentKey = 'signing_key:';

/** Missing while CLICKHOUSE_URL has never named more than one server. */
export const shardServersKey: DocumentKey = 'shard_servers:';
