// From a request's document to a group for the commit: one or many records of a kind, checked, limited and encoded. Returns a reason for
// whatever it cannot accept. Pure, except for the unique ids of events without a key.

import { commits, flattened } from '../contract/limits.js';
import { type OutcomeCode, type Rejection, rejection } from '../contract/outcomes.js';
import type { Document } from '../parsing/document.js';
import { explain } from '../parsing/explain.js';
import type { Steps } from '../parsing/steps.js';
import type { Suppressions } from '../privacy/suppression/suppressions.js';
import { createMending, type MendContext, type Mending } from './mend.js';
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
import { createSubmission, markUsers, type Submission, type SubmissionContext } from './submission.js';

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

/** Prepares a request, one record a step if its document is large. `document.value` is an object with the app_id of the environment. */
export function* prepare<T extends Checked>(
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
  const mending = mendingOf(document, context, flattened.singleBytesMax);
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

  const { appId } = context.environment;
  const checks = checkContext(document, context);
  const mending = mendingOf(document, context, flattened.bulkBytesMax);
  const { accepted, errors } = yield* checkEach(elements, document.isLarge, (element) =>
    checkOne(kind, element, checks, mending),
  );
  if (errors.length > 0 && (context.strictBulk || accepted.length === 0))
    return refuseElements(field, errors);
  const encoded = function* () {
    for (const named of accepted) yield { record: kind.encode(appId, named), named };
  };
  const submission = yield* submitBulk(kind, field, accepted, encoded(), document.isLarge, context);
  if ('code' in submission) return { kind: 'refused', reason: submission };
  const mendings = mending?.mendings ?? noMendings;
  return { kind: 'ready', submission, records: accepted.length, errors, mendings };
}

/** Checks the elements of a request, one a step if it is large. */
export function* checkEach<Accepted extends object>(
  elements: readonly unknown[],
  isLarge: boolean,
  check: (element: unknown) => Accepted | Rejection,
): Steps<{ readonly accepted: readonly Accepted[]; readonly errors: readonly ElementError[] }> {
  const accepted: Accepted[] = [];
  const errors: ElementError[] = [];
  for (let index = 0; index < elements.length; index++) {
    if (isLarge) yield;
    const checked = check(elements[index]);
    if ('code' in checked) errors.push({ index, ...checked });
    else accepted.push(checked);
  }
  return { accepted, errors };
}

/** Refuses a request for its bad elements, of which the first is the reason. `field`: its list. */
export function refuseElements(field: string, errors: readonly ElementError[]): Refused {
  const { index, code, message, field: inElement } = errors[0] as ElementError;
  const path = [field, index, ...(inElement === undefined ? [] : [inElement])].join('.');
  return { kind: 'refused', reason: rejection(code, message, path), errors };
}

/** A record, and its user with both names of an identification. */
export type NamedRecord = { readonly record: IngestRecord; readonly named: Checked };

/**
 * Submits the records of a bulk request as one group, one record a step if the request is large, or refuses them: for a limit that they can
 * never pass before the first is encoded, and as soon as they have too many bytes, since rows may be many times larger than the request.
 * `users`: those whose limits count the request. `field`: its list.
 */
export function* submitBulk(
  counter: { readonly name: string },
  field: string,
  users: readonly Checked[],
  encoded: Iterable<NamedRecord>,
  isLarge: boolean,
  context: SubmissionContext & LimitContext,
): Steps<Submission<LimitedGroup> | Rejection> {
  const limits = bulkLimits(counter, users.length, () => users, context);
  const tooLarge = refuseTooLarge(limits, field);
  if (tooLarge !== undefined) return tooLarge;
  const records: IngestRecord[] = [];
  const named: Checked[] = [];
  let bytes = 0;
  for (const each of encoded) {
    if (isLarge) yield;
    records.push(each.record);
    named.push(each.named);
    bytes += recordBytesMax(each.record);
    if (bytes > commits.groupBytesMax) {
      const message = `The records of this request take more than ${commits.groupBytesMax} bytes when stored; send fewer in one request.`;
      return rejection('too_long', message, field);
    }
  }
  const groups = groupOf(encodedRecords(records), limits, context);
  return createSubmission(context, groups, (suppressed) => markUsers(named, suppressed));
}

/** Prepares a request of plain events; undefined if it could never pass one of its limits. */
export function preparePlain(
  kind: Pick<RecordKind, 'name' | 'singleLimit'>,
  events: PlainEvents,
  context: PrepareContext,
): Ready | undefined {
  const limits = events.isBulk
    ? bulkLimits(kind, events.count, () => usersOf(events), context)
    : singleLimits(kind, userOf(events, 0), context);
  for (const { cost, limit } of limits) if (cost > limit.max) return undefined;
  const records = new PlainRecords(events);
  const groups = groupOf(records, limits, context);
  const submission = createSubmission(context, groups, (suppressed) => records.marksBy(suppressed));
  return { kind: 'ready', submission, records: events.count, errors: noErrors, mendings: noMendings };
}

const noErrors: readonly ElementError[] = [];
const noMendings: ReadonlyMap<Mending, number> = new Map();

/** Makes the group of a request. Adds the environment's limits, which count what is stored, to `limits`, those of the request's kind. */
function groupOf(records: Records, limits: NamedLimit[], context: LimitContext): readonly LimitedGroup[] {
  addEnvironmentLimits(limits, records.length, records.rowBytesMax, context);
  return [{ appId: context.environment.appId, limits, records, bytes: packedBytesMax(limits, records) }];
}

function checkContext({ surrogates }: Document, { environment, nowMs }: PrepareContext): CheckContext {
  const { appId, allowedIdentities } = environment;
  return { appId, surrogates, nowMs, allowedIdentities };
}

/** The state in which a request of a lenient environment is mended; undefined in a strict one. */
function mendingOf(document: Document, { environment }: PrepareContext, flattenedBytesMax: number) {
  if (!environment.lenient) return undefined;
  const mending = createMending(document, flattenedBytesMax);
  if (typeof (document.value as { app_id: unknown }).app_id === 'number') mending.note('numeric_app_id');
  return mending;
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
