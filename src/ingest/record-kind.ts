// What the kinds of records have in common: each is checked, has a user, and becomes one row.

import type { LimitName } from '../contract/limits.js';
import type { Rejection } from '../contract/outcomes.js';
import type { Validator } from './explain.js';
import type { Mend } from './mend.js';
import type { IngestRecord } from './pack.js';
import type { readPlainEvents } from './plain-events.js';

/** A record that holds to the contract. */
export type Checked = {
  /** Empty when the record came with a user_id only. */
  readonly identity: string;
  /** Decimal digits; undefined when the record came with an identity only. */
  readonly userId: string | undefined;
};

export type CheckContext = {
  /** Whether the document may hold lone surrogates. */
  readonly surrogates: boolean;
  /** Bounds timestamps in the future. */
  readonly nowMs: number;
  /** Identities that the environment allows although they would merge strangers elsewhere. */
  readonly allowedIdentities: ReadonlySet<string>;
};

export type RecordKind<T extends Checked = Checked> = {
  /** Name in metrics and in the keys of limits: every endpoint has its own counters. */
  readonly name: 'track' | 'user_properties' | 'identify';
  /** Turns what lenient environments forgive into what the contract says. */
  readonly mend: Mend;
  readonly check: (value: unknown, context: CheckContext) => T | Rejection;
  readonly encode: (appId: string, checked: T) => IngestRecord;
  /** A shorter way for requests of the usual shape, if this kind has one. */
  readonly readPlain?: typeof readPlainEvents;
  /** The limit of requests with one record. */
  readonly singleLimit: LimitName | undefined;
  /** The field that makes a request a bulk request, with the schema of the list; undefined: there is none. */
  readonly bulk: { readonly field: string; readonly validator: Validator } | undefined;
};
