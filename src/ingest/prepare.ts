// From a request's document to a group for the commit: one or many records of a kind, checked, limited and encoded. Returns a reason for
// whatever it cannot accept. Pure, except for the unique ids of events without a key.

import { commits, flattened } from '../contract/limits.js';
import { type OutcomeCode, type Rejection, rejection } from '../contract/outcomes.js';
import type { Document } from '../parsing/document.js';
import { explain } from '../parsing/explain.js';
import { atOnce, type Steps } from '../parsing/steps.js';
import type { Suppressions } from '../privacy/suppression/suppressions.js';
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
import { PlainRecords, userOf, usersOf } from './plain-rows.js';
import type { CheckContext, Checked, RecordKind } from './record-kind.js';
import {
  addEnvironmentLimits,
  bulkLimits,
  type LimitContext,
  type NamedLimit,
  refuseTooLarge,
  singleLimits,
} from './request-limits.js';
import { createSubmission, markUsers, type Submission } from './submission.js';

/** The result of a request before its commit. */
export type Prepared = Refused | Ready;

export type Refused = {
  readonly kind: 'refused';
  readonly reason: Rejection;
  /** Every bad element of a bulk request that is refused for its elements. */
  readonly errors?: readonly ElementError[];
};

export type Ready = {
  readonly kind: 'ready';
  readonly submission: Submission<LimitedGroup>;
  readonly records: number;
  /** The bad elements of a bulk request, which are left out. */
  readonly errors: readonly ElementError[];
  readonly mendings: ReadonlyMap<Mending, number>;
};

export type LimitedGroup = Group & { readonly limits: readonly NamedLimit[] };

export type ElementError = {
  readonly index: number;
  readonly code: OutcomeCode;
  readonly field?: string;
  readonly message: string;
};

export type PrepareContext = LimitContext & {
  readonly suppressions: Suppressions;
  readonly nowMs: number;
  /** A bulk request with one bad element is refused as a whole. */
  readonly strictBulk: boolean;
};

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
    ? atOnce(prepareBulk(kind, document, context))
    : prepareSingle(kind, document, context);
}

/** Prepares a request with a large document, one record a step. */
export function* prepareLarge<T extends Checked>(
  kind: RecordKind<T>,
  document: Document,
  context: PrepareContext,
): Steps<Prepared> {
  return isBulk(kind, document)
    ? yield* prepareBulk(kind, document, context)
    : prepareSingle(kind, document, context);
}

function prepareSingle<T extends Checked>(
  kind: RecordKind<T>,
  document: Document,
  context: PrepareContext,
): Prepared {
  const checks = checkContext(document, context);
  const mending = mendContext(document, context, flattened.singleBytesMax);
  const checked = checkOne(kind, document.value, checks, mending);
  if ('code' in checked) return { kind: 'refused', reason: checked };

  const record = kind.encode(context.environment.appId, checked);
  const groups = groupOf(encodedRecords([record]), singleLimits(kind, checked, context), context);
  const submission = createSubmission(context, groups, (suppressed) => markUsers([checked], suppressed));
  const mendings = mending?.mendings ?? noMendings;
  return { kind: 'ready', submission, records: 1, errors: noErrors, mendings };
}

function* prepareBulk<T extends Checked>(
  kind: RecordKind<T>,
  document: Document,
  context: PrepareContext,
): Steps<Prepared> {
  const { field, validator } = kind.bulk as NonNullable<RecordKind['bulk']>;
  const reason = explain(validator, document.value);
  if (reason !== undefined) return { kind: 'refused', reason };
  const elements = (document.value as Record<string, unknown[]>)[field] ?? [];

  const { environment } = context;
  const accepted: T[] = [];
  const errors: ElementError[] = [];
  const checks = checkContext(document, context);
  const mending = mendContext(document, context, flattened.bulkBytesMax);
  for (let index = 0; index < elements.length; index++) {
    if (document.isLarge) yield;
    const checked = checkOne(kind, elements[index], checks, mending);
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
  const tooLarge = refuseTooLarge(limits, field);
  if (tooLarge !== undefined) return { kind: 'refused', reason: tooLarge };
  const rows: IngestRecord[] = [];
  let bytes = 0;
  for (const checked of accepted) {
    if (document.isLarge) yield;
    const record = kind.encode(environment.appId, checked);
    bytes += recordBytesMax(record);
    if (bytes > commits.groupBytesMax) return { kind: 'refused', reason: tooManyBytes(field) };
    rows.push(record);
  }
  const groups = groupOf(encodedRecords(rows), limits, context);
  const submission = createSubmission(context, groups, (suppressed) => markUsers(accepted, suppressed));
  const mendings = mending?.mendings ?? noMendings;
  return { kind: 'ready', submission, records: accepted.length, errors, mendings };
}

/** Refuses a request whose rows together are too large for a commit. `field`: its list. */
export function tooManyBytes(field: string): Rejection {
  const message = `The records of this request take more than ${commits.groupBytesMax} bytes when stored; send fewer in one request.`;
  return rejection('too_long', message, field);
}

/** Prepares a request of plain events; undefined if it could never pass one of its limits. */
export function preparePlain(
  kind: Pick<RecordKind, 'name' | 'singleLimit'>,
  events: PlainEvents,
  context: PrepareContext,
): Ready | undefined {
  const limits = plainLimits(kind, events, context);
  for (const { cost, limit } of limits) if (cost > limit.max) return undefined;
  const records = new PlainRecords(events);
  const groups = groupOf(records, limits, context);
  const submission = createSubmission(context, groups, (suppressed) => records.marksBy(suppressed));
  return { kind: 'ready', submission, records: events.count, errors: noErrors, mendings: noMendings };
}

const noErrors: readonly ElementError[] = [];
const noMendings: ReadonlyMap<Mending, number> = new Map();

function plainLimits(
  kind: Pick<RecordKind, 'name' | 'singleLimit'>,
  events: PlainEvents,
  context: PrepareContext,
): NamedLimit[] {
  return events.isBulk
    ? bulkLimits(kind, events.count, () => usersOf(events), context)
    : singleLimits(kind, userOf(events, 0), context);
}

/** Makes the group of a request. Adds the environment's limits, which count what is stored, to `limits`, those of the request's kind. */
function groupOf(records: Records, limits: NamedLimit[], context: LimitContext): readonly LimitedGroup[] {
  addEnvironmentLimits(limits, records.length, records.rowBytesMax, context);
  return [{ appId: context.environment.appId, limits, records, bytes: packedBytesMax(limits, records) }];
}

function checkContext({ surrogates }: Document, { environment, nowMs }: PrepareContext): CheckContext {
  return { surrogates, nowMs, allowedIdentities: environment.allowedIdentities };
}

/** The context in which a request of a lenient environment is mended, with the counts of mendings; undefined in a strict environment. */
function mendContext(
  { value, longNumerals }: Document,
  { environment }: PrepareContext,
  flattenedBytesLeft: number,
): (MendContext & { readonly mendings: ReadonlyMap<Mending, number> }) | undefined {
  if (!environment.lenient) return undefined;
  const mendings = new Map<Mending, number>();
  const note = (mending: Mending) => mendings.set(mending, (mendings.get(mending) ?? 0) + 1);
  if (typeof (value as { app_id: unknown }).app_id === 'number') note('numeric_app_id');
  return { note, longNumerals, flattenedBytesLeft, mendings };
}

function checkOne<T extends Checked>(
  kind: RecordKind<T>,
  value: unknown,
  context: CheckContext,
  mending: MendContext | undefined,
): T | Rejection {
  if (mending === undefined) return kind.check(value, context);
  const mended = kind.mend(value, mending);
  return 'code' in mended ? mended : kind.check(mended.value, context);
}
