// From a request's document to a group for the commit: one record or many of a kind, checked, limited and
// encoded. Pure but for the unique ids of events without a key; what it cannot accept it answers with reasons.

import type { LiveEnvironment } from '../accounts/environments.js';
import type { LimitName, RateLimit } from '../contract/limits.js';
import { type OutcomeCode, type Rejection, rejection } from '../contract/outcomes.js';
import type { Document } from './document.js';
import { explain } from './explain.js';
import type { LimitKeys } from './limit-key.js';
import type { Mending } from './mend.js';
import { type Group, type IngestRecord, type LimitCheck, packedBytesMax } from './pack.js';
import type { CheckContext, Checked, RecordKind } from './record-kind.js';

/** What a request comes to before its commit. */
export type Prepared =
  | {
      readonly kind: 'refused';
      readonly reason: Rejection;
      /** Of a bulk request whose elements are at fault: every bad one. */
      readonly errors?: readonly ElementError[];
    }
  | Ready;

export type Ready = {
  readonly kind: 'ready';
  readonly group: Group;
  /** Names of the group's limits, in its order. */
  readonly limitNames: readonly LimitName[];
  /** Bad elements of a bulk request, which are left out. */
  readonly errors: readonly ElementError[];
  readonly mendings: ReadonlyMap<Mending, number>;
};

export type ElementError = {
  readonly index: number;
  readonly code: OutcomeCode;
  readonly field?: string;
  readonly message: string;
};

export type PrepareContext = {
  readonly environment: LiveEnvironment;
  readonly limitKeys: LimitKeys;
  readonly nowMs: number;
  /** A bulk request with one bad element is refused whole. */
  readonly strictBulk: boolean;
};

/** Whether a document is a bulk request of this kind. */
export function isBulk(kind: Pick<RecordKind, 'bulk'>, document: Document): boolean {
  return kind.bulk !== undefined && Object.hasOwn(document.value as object, kind.bulk.field);
}

/** Prepares a request. `document.value` is an object with the app_id of the environment. */
export function prepare<T extends Checked>(
  kind: RecordKind<T>,
  document: Document,
  context: PrepareContext,
): Prepared {
  return isBulk(kind, document)
    ? prepareBulk(kind, document, context)
    : prepareSingle(kind, document, context);
}

function prepareSingle<T extends Checked>(
  kind: RecordKind<T>,
  document: Document,
  context: PrepareContext,
): Prepared {
  const { environment, limitKeys } = context;
  const mendings = mendingsOf(document);
  const checked = checkOne(kind, document.value, checkContext(document, context), environment, mendings);
  if ('code' in checked) return { kind: 'refused', reason: checked };

  const limit = kind.singleLimit === undefined ? undefined : environment.limits[kind.singleLimit];
  const limits: LimitCheck[] = [];
  if (limit !== undefined) {
    limits.push({ digest: limitKeys.ofUser(kind.name, environment.appId, checked), cost: 1, limit });
  }
  const records = [kind.encode(environment.appId, checked)];
  const group = { limits, records, bytes: packedBytesMax(limits, records) };
  const limitNames = limit === undefined ? [] : [kind.singleLimit as LimitName];
  return { kind: 'ready', group, limitNames, errors: [], mendings };
}

function prepareBulk<T extends Checked>(
  kind: RecordKind<T>,
  document: Document,
  context: PrepareContext,
): Prepared {
  const { field, validator } = kind.bulk as NonNullable<RecordKind['bulk']>;
  const reason = explain(validator, document.value);
  if (reason !== undefined) return { kind: 'refused', reason };
  const elements = (document.value as Record<string, unknown[]>)[field] ?? [];

  const { environment } = context;
  const mendings = mendingsOf(document);
  const accepted: T[] = [];
  const errors: ElementError[] = [];
  const checks = checkContext(document, context);
  for (let index = 0; index < elements.length; index++) {
    const checked = checkOne(kind, elements[index], checks, environment, mendings);
    if ('code' in checked) errors.push({ index, ...checked });
    else accepted.push(checked);
  }
  const first = errors[0];
  if (first !== undefined && (context.strictBulk || accepted.length === 0)) {
    const path =
      first.field === undefined ? `${field}.${first.index}` : `${field}.${first.index}.${first.field}`;
    return { kind: 'refused', reason: rejection(first.code, first.message, path), errors };
  }

  const { limits, limitNames, never } = bulkLimits(kind, accepted, field, context);
  if (never !== undefined) return { kind: 'refused', reason: never };
  const records: IngestRecord[] = accepted.map((checked) => kind.encode(environment.appId, checked));
  const group = { limits, records, bytes: packedBytesMax(limits, records) };
  return { kind: 'ready', group, limitNames, errors, mendings };
}

function checkContext({ surrogates }: Document, { environment, nowMs }: PrepareContext): CheckContext {
  return { surrogates, nowMs, allowedIdentities: environment.allowedIdentities };
}

/** The mendings of a request, to which those of its records are added. */
function mendingsOf(document: Document): Map<Mending, number> {
  const numeric = typeof (document.value as { app_id: unknown }).app_id === 'number';
  return new Map(numeric ? [['numeric_app_id', 1]] : []);
}

function checkOne<T extends Checked>(
  kind: RecordKind<T>,
  value: unknown,
  context: CheckContext,
  environment: LiveEnvironment,
  mendings: Map<Mending, number>,
): T | Rejection {
  if (!environment.lenient) return kind.check(value, context);
  const mended = kind.mend(value, (mending) => mendings.set(mending, (mendings.get(mending) ?? 0) + 1));
  return kind.check(mended, context);
}

/** The limits of a bulk request: its environment's and those of every user in it, by number of records. */
function bulkLimits(
  kind: Pick<RecordKind, 'name'>,
  accepted: readonly Checked[],
  field: string,
  { environment, limitKeys }: PrepareContext,
) {
  const { appId } = environment;
  const limits: LimitCheck[] = [];
  const limitNames: LimitName[] = [];
  let never: Rejection | undefined;
  const add = (name: LimitName, digest: string, cost: number, limit: RateLimit) => {
    limits.push({ digest, cost, limit });
    limitNames.push(name);
    if (cost > limit.max) {
      never ??= rejection(
        'too_large_for_limit',
        `The request counts ${cost}; ${name} allows ${limit.max}.`,
        field,
      );
    }
  };

  const appLimit = environment.limits.bulk_app;
  if (appLimit !== undefined) add('bulk_app', limitKeys.ofApp(kind.name, appId), accepted.length, appLimit);
  const userLimit = environment.limits.bulk_identity;
  if (userLimit !== undefined) {
    const costs = new Map<string, { user: Checked; cost: number }>();
    for (const user of accepted) {
      const key = user.userId === undefined ? `i${user.identity}` : `u${user.userId}`;
      const entry = costs.get(key);
      if (entry === undefined) costs.set(key, { user, cost: 1 });
      else entry.cost += 1;
    }
    for (const { user, cost } of costs.values()) {
      add('bulk_identity', limitKeys.ofUser(`bulk ${kind.name}`, appId, user), cost, userLimit);
    }
  }
  return { limits, limitNames, never };
}
