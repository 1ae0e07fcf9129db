// What all kinds of records have in common: each is checked, has a user, and becomes one row.

import type { LimitName } from '../contract/limits.js';
import type { Rejection } from '../contract/outcomes.js';
import type { Validator } from '../parsing/explain.js';
import type { RecordList } from '../parsing/large-document.js';
import type { Mend } from './mend.js';
import type { IngestRecord } from './pack.js';
import type { readPlainEvents } from './plain-events.js';

/** A record that meets the contract. */
export type Checked = {
  /** Empty if the record came with a user_id only. */
  readonly identity: string;
  /** Decimal digits; undefined if the record came with an identity only. */
  readonly userId: string | undefined;
};

export type CheckContext = {
  readonly appId: string;
  /** Whether the document may hold lone surrogates. */
  readonly surrogates: boolean;
  /** The present, which limits timestamps in the future. */
  readonly nowMs: number;
  /** Identities that the environment allows although they are generic words. */
  readonly allowedIdentities: ReadonlySet<string>;
};

export type RecordKind<T extends Checked = Checked> = {
  /** The name in metrics, among rejected records and in the keys of limits: every endpoint has its own counters. */
  readonly name: string;
  /** The names of its fields in a request, without app_id. */
  readonly fields: ReadonlySet<string>;
  /** Turns what lenient environments forgive into the contract's form. */
  readonly mend: Mend;
  readonly check: (value: unknown, context: CheckContext) => T | Rejection;
  readonly encode: (appId: string, checked: T) => IngestRecord;
  /** A faster way to read plain requests, if this kind has one. */
  readonly readPlain?: typeof readPlainEvents;
  readonly singleLimit: LimitName | undefined;
  /** The field that makes a request a bulk request, with the schema of its list; undefined if this kind has none. */
  readonly bulk: (RecordList & { readonly validator: Validator }) | undefined;
};
