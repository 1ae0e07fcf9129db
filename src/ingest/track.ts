// From a request's document to a group for the commit: one event or many, checked, limited and encoded. Pure
// but for the unique ids of events without a key; what it cannot accept it answers with reasons.

import type { LiveEnvironment } from '../accounts/environments.js';
import { tableIndex } from '../clickhouse/tables.js';
import type { LimitName, RateLimit } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { type CheckedEvent, checkBulkEvents, checkEvent } from './check.js';
import type { Document } from './document.js';
import { encodeEvent } from './encode.js';
import { eventIdOfKey, uniqueEventId } from './event-id.js';
import type { LimitKeys } from './limit-key.js';
import { type Mending, mendEvent } from './mend.js';
import { type Group, type IngestRecord, type LimitCheck, packedBytesMax } from './pack.js';

/** What a track request comes to before its commit. */
export type Prepared =
  | { readonly kind: 'refused'; readonly reason: Rejection; readonly errors?: ElementError[] }
  | {
      readonly kind: 'ready';
      readonly group: Group;
      /** Names of the group's limits, in its order. */
      readonly limitNames: readonly LimitName[];
      /** Bad elements of a bulk request that are left out. */
      readonly errors: readonly ElementError[];
      readonly mendings: ReadonlyMap<Mending, number>;
    };

export type ElementError = { readonly index: number } & Rejection;

export type TrackContext = {
  readonly environment: LiveEnvironment;
  readonly limitKeys: LimitKeys;
  readonly nowMs: number;
};

/** Prepares a request with one event. */
export function prepareEvent(document: Document, context: TrackContext): Prepared {
  const { environment, limitKeys } = context;
  const mendings = new Map<Mending, number>();
  const event = checkOne(document.value, document, context, mendings);
  if ('code' in event) return { kind: 'refused', reason: event };

  const limits: LimitCheck[] = [];
  const limit = environment.limits.track;
  if (limit !== undefined) {
    const digest = limitKeys.ofUser('track', environment.appId, event.identity, event.userId);
    limits.push({ digest, cost: 1, limit });
  }
  const records = [recordOf(environment.appId, event)];
  const group = { limits, records, bytes: packedBytesMax(limits, records) };
  return { kind: 'ready', group, limitNames: limits.length === 0 ? [] : ['track'], errors: [], mendings };
}

/** Prepares a bulk request; with `strict` one bad element refuses all. */
export function prepareBulk(document: Document, strict: boolean, context: TrackContext): Prepared {
  const reason = checkBulkEvents(document.value);
  if (reason !== undefined) return { kind: 'refused', reason };
  const elements = (document.value as { events: unknown[] }).events;

  const mendings = new Map<Mending, number>();
  const events: CheckedEvent[] = [];
  const errors: ElementError[] = [];
  for (let index = 0; index < elements.length; index++) {
    const event = checkOne(elements[index], document, context, mendings);
    if ('code' in event) errors.push({ index, ...event });
    else events.push(event);
  }
  const firstError = errors[0];
  if (firstError !== undefined && (strict || events.length === 0)) {
    const { index, code, message, field } = firstError;
    return { kind: 'refused', reason: rejection(code, message, pathOf(index, field)), errors };
  }

  const { appId } = context.environment;
  const { limits, limitNames, never } = bulkLimits(events, context);
  if (never !== undefined) return { kind: 'refused', reason: never };
  const records = events.map((event) => recordOf(appId, event));
  const group = { limits, records, bytes: packedBytesMax(limits, records) };
  return { kind: 'ready', group, limitNames, errors, mendings };
}

function checkOne(
  value: unknown,
  { surrogates }: Document,
  { environment, nowMs }: TrackContext,
  mendings: Map<Mending, number>,
): CheckedEvent | Rejection {
  const mended = environment.lenient
    ? mendEvent(value, (mending) => mendings.set(mending, (mendings.get(mending) ?? 0) + 1))
    : value;
  return checkEvent(mended, surrogates, nowMs);
}

function recordOf(appId: string, event: CheckedEvent): IngestRecord {
  const { idempotencyKey } = event;
  const eventId = idempotencyKey === undefined ? uniqueEventId() : eventIdOfKey(appId, idempotencyKey);
  return {
    table: tableIndex.events,
    row: encodeEvent(appId, eventId, event),
    claim: idempotencyKey === undefined ? undefined : eventId,
  };
}

/** The limits of a bulk request: its environment's and those of every user in it, by number of events. */
function bulkLimits(events: readonly CheckedEvent[], { environment, limitKeys }: TrackContext) {
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
        `The request has ${cost} events; ${name} allows ${limit.max}.`,
        'events',
      );
    }
  };

  const appLimit = environment.limits.bulk_app;
  if (appLimit !== undefined) add('bulk_app', limitKeys.ofApp('bulk_app', appId), events.length, appLimit);
  const userLimit = environment.limits.bulk_identity;
  if (userLimit !== undefined) {
    const costs = new Map<string, number>();
    for (const { identity, userId } of events) {
      const user = userId === undefined ? `i${identity}` : `u${userId}`;
      costs.set(user, (costs.get(user) ?? 0) + 1);
    }
    for (const [user, cost] of costs) {
      const id = user.slice(1);
      const digest =
        user[0] === 'i'
          ? limitKeys.ofUser('bulk_identity', appId, id, undefined)
          : limitKeys.ofUser('bulk_identity', appId, '', id);
      add('bulk_identity', digest, cost, userLimit);
    }
  }
  return { limits, limitNames, never };
}

/** Path of a field in a bulk request, such as `events.3.identity`. */
function pathOf(index: number, field: string | undefined): string {
  return field === undefined ? `events.${index}` : `events.${index}.${field}`;
}
