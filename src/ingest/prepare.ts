// From a request's document to a group for the commit: one record or many of a kind, checked, limited and
// encoded. Pure but for the unique ids of events without a key; what it cannot accept it answers with reasons.

import type { LiveEnvironment } from '../accounts/environments.js';
import { commits, flattened } from '../contract/limits.js';
import { type OutcomeCode, type Rejection, rejection } from '../contract/outcomes.js';
import type { Document } from './document.js';
import { explain } from './explain.js';
import type { MendContext, Mending } from './mend.js';
import {
  encodedRecords,
  type Group,
  type IngestRecord,
  packedBytesMax,
  type Records,
  recordBytesMax,
} from './pack.js';
import type { PlainEvents } from './plain-events.js';
import { recordsOf, usersOf } from './plain-rows.js';
import type { CheckContext, Checked, RecordKind } from './record-kind.js';
import { bulkLimits, type LimitContext, type NamedLimit, singleLimits } from './request-limits.js';

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
  readonly group: Group & { readonly limits: readonly NamedLimit[] };
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

export type PrepareContext = LimitContext & {
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
  const mendings = mendingsOf(document);
  const checks = checkContext(document, context);
  const mending = mendContext(document, mendings, flattened.singleBytesMax);
  const checked = checkOne(kind, document.value, checks, context.environment, mending);
  if ('code' in checked) return { kind: 'refused', reason: checked };

  const limits = singleLimits(kind, checked, context);
  const records = encodedRecords([kind.encode(context.environment.appId, checked)]);
  return ready(records, limits, [], mendings);
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
  const mending = mendContext(document, mendings, flattened.bulkBytesMax);
  for (let index = 0; index < elements.length; index++) {
    const checked = checkOne(kind, elements[index], checks, environment, mending);
    if ('code' in checked) errors.push({ index, ...checked });
    else accepted.push(checked);
  }
  const first = errors[0];
  if (first !== undefined && (context.strictBulk || accepted.length === 0)) {
    const path =
      first.field === undefined ? `${field}.${first.index}` : `${field}.${first.index}.${first.field}`;
    return { kind: 'refused', reason: rejection(first.code, first.message, path), errors };
  }

  const limits = bulkLimits(kind, accepted.length, () => accepted, context);
  const never = limits.find(({ cost, limit }) => cost > limit.max);
  if (never !== undefined) return { kind: 'refused', reason: tooLargeForLimit(never, field) };
  const rows: IngestRecord[] = [];
  let bytes = 0;
  for (const checked of accepted) {
    const record = kind.encode(environment.appId, checked);
    bytes += recordBytesMax(record);
    if (bytes > commits.groupBytesMax)
      return { kind: 'refused', reason: rejection('too_long', tooManyBytes, field) };
    rows.push(record);
  }
  return ready(encodedRecords(rows), limits, errors, mendings);
}

const tooManyBytes = `The records of the request, as they are stored, have more than ${commits.groupBytesMax} bytes; send fewer in one request.`;

/** Prepares a request of plain events; undefined when one of its limits can never let it pass. */
export function preparePlain(
  kind: Pick<RecordKind, 'name' | 'singleLimit'>,
  events: PlainEvents,
  context: PrepareContext,
): Ready | undefined {
  const users = () => usersOf(events);
  const limits = events.isBulk
    ? bulkLimits(kind, events.count, users, context)
    : singleLimits(kind, users()[0] as Checked, context);
  if (limits.some(({ cost, limit }) => cost > limit.max)) return undefined;
  return ready(recordsOf(events), limits, [], new Map());
}

function ready(
  records: Records,
  limits: readonly NamedLimit[],
  errors: Ready['errors'],
  mendings: Ready['mendings'],
): Ready {
  const group = { limits, records, bytes: packedBytesMax(limits, records) };
  return { kind: 'ready', group, errors, mendings };
}

function checkContext({ surrogates }: Document, { environment, nowMs }: PrepareContext): CheckContext {
  return { surrogates, nowMs, allowedIdentities: environment.allowedIdentities };
}

/** The mendings of a request, to which those of its records are added. */
function mendingsOf(document: Document): Map<Mending, number> {
  const numeric = typeof (document.value as { app_id: unknown }).app_id === 'number';
  return new Map(numeric ? [['numeric_app_id', 1]] : []);
}

function mendContext(
  { longNumerals }: Document,
  mendings: Map<Mending, number>,
  flattenedBytesLeft: number,
): MendContext {
  const note = (mending: Mending) => mendings.set(mending, (mendings.get(mending) ?? 0) + 1);
  return { note, longNumerals, flattenedBytesLeft };
}

function checkOne<T extends Checked>(
  kind: RecordKind<T>,
  value: unknown,
  context: CheckContext,
  environment: LiveEnvironment,
  mending: MendContext,
): T | Rejection {
  if (!environment.lenient) return kind.check(value, context);
  const mended = kind.mend(value, mending);
  return 'code' in mended ? mended : kind.check(mended.value, context);
}

function tooLargeForLimit({ name, cost, limit }: NamedLimit, field: string): Rejection {
  return rejection('too_large_for_limit', `The request counts ${cost}; ${name} allows ${limit.max}.`, field);
}
