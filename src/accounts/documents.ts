// The documents of the registry: deployment, accounts, environments, API keys. They live in Redis and, within
// seconds, in ClickHouse (see mirror.ts). Field names are snake_case, as they are printed to administrators.

import type { LimitName } from '../contract/limits.js';

export type Deployment = {
  /** Random; a Redis that does not hold it is not this deployment's. */
  readonly epoch: string;
  /** Key of the hashes of identities in Redis and in records of refusals. */
  readonly secret: string;
  readonly shards: number;
  readonly created_at: string;
};

export type Account = {
  readonly account_id: string;
  readonly name: string;
  readonly created_at: string;
};

export type Environment = {
  /** A decimal string, unique over the deployment. */
  readonly app_id: string;
  readonly account_id: string;
  readonly name: string;
  /** Whether it is the account's Main Production environment; exactly one is. */
  readonly main: boolean;
  readonly validation: 'strict' | 'lenient';
  /** Only what differs from the defaults; `none` switches a limit off. */
  readonly limits: Partial<Record<LimitName, number | 'none'>>;
  /** Identities that identify takes although they look like words for nobody. */
  readonly allowed_identities?: readonly string[];
  readonly created_at: string;
};

export type ApiKey = {
  readonly app_id: string;
  /** SHA-256 of the key, which has 256 random bits, in hexadecimal digits. */
  readonly hash: string;
  readonly created_at: string;
};

export type DocumentKind = 'deployment' | 'account' | 'environment' | 'api_key';

/** "<kind>:<id>" */
export type DocumentKey = `${DocumentKind}:${string}`;

export const deploymentKey: DocumentKey = 'deployment:';
