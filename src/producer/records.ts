// Calls become records: the JSON that will be sent, made once, with its time and its idempotency key. From then on a record
// never changes, so a repeat has the same bytes.

import { randomBytes } from 'node:crypto';
import { outcomes, type Rejection, rejection } from '../contract/outcomes.js';
import { producerLimits as limits } from './limits.js';

export type Operation = 'track' | 'addUserProperties' | 'identify';

/** What properties may hold. Strict environments take texts, numbers and lists of them; lenient ones all of it. */
export type PropertyValue =
  | string
  | number
  | bigint
  | boolean
  | Date
  | null
  | undefined
  | readonly PropertyValue[]
  | { readonly [key: string]: PropertyValue };

/** Properties by an interface too: a type of its own has no index signature. */
export type PropertiesOf<T> = { readonly [Key in keyof T]: PropertyValue | object };

export type Timestamp = Date | string | number;

/** The user of an event: exactly one of the two. */
export type EventUser =
  | { readonly identity: string | number; readonly userId?: undefined }
  | { readonly userId: string | number; readonly identity?: undefined };

export type TrackedEvent<T = Readonly<Record<string, PropertyValue>>> = EventUser & {
  /** At most 1024 characters. */
  readonly event: string;
  readonly properties?: (T & PropertiesOf<T>) | undefined;
  readonly sessionId?: string | undefined;
  /** When it happened, in milliseconds if it is a number; default: now. */
  readonly timestamp?: Timestamp | undefined;
  /** Default: one of its own. Two events with the same key are one. */
  readonly idempotencyKey?: string | undefined;
};

export type Identification = {
  /** What the client library calls `userId`: the anonymous user's number, never the id of a database. */
  readonly userId: string | number;
  readonly identity: string | number;
  readonly timestamp?: Timestamp | undefined;
};

export type UserProperties<T = Readonly<Record<string, PropertyValue>>> = {
  readonly identity: string | number;
  readonly properties: T & PropertiesOf<T>;
};

export type QueuedRecord = {
  readonly operation: Operation;
  /** Records of the same user keep their order. */
  readonly user: string;
  /** Its JSON. */
  readonly text: string;
  readonly bytes: number;
  /** In the order of the calls. */
  number: number;
  /** By the steady clock, in milliseconds; when it came into memory. */
  takenAt: number;
  /** The flush that it waits for. */
  generation: number;
  /** In a spool: where it stands, once that is known. */
  place: { readonly file: number; readonly line: number } | undefined;
  isSettled: boolean;
};

export type Recorder = {
  track(event: TrackedEvent): QueuedRecord | Unsendable;
  identify(identification: Identification): QueuedRecord | Unsendable;
  addUserProperties(user: UserProperties): QueuedRecord | Unsendable;
};

/** A call that cannot become a record. */
export type Unsendable = { readonly operation: Operation; readonly reason: Rejection };

/** `nowMs`: the wall clock. */
export function createRecorder(nowMs: () => number): Recorder {
  // Keys are unique over processes by their beginning, and within this one by their number. They compress well.
  const keyPrefix = randomBytes(15).toString('base64url');
  let keys = 0;
  const nextKey = (): string => `${keyPrefix}-${(keys++).toString(36)}`;
  let lastMs = Number.NaN;
  let lastText = '';

  /** Most records come in the same millisecond as the previous one. */
  function now(): string {
    const ms = nowMs();
    if (ms !== lastMs) {
      lastText = new Date(ms).toISOString();
      lastMs = ms;
    }
    return lastText;
  }

  function timestampOf(given: Timestamp | undefined | null): string | Rejection {
    if (given === undefined || given === null) return now();
    if (typeof given === 'string') return given;
    const ms = typeof given === 'number' ? given : given instanceof Date ? given.getTime() : Number.NaN;
    if (typeof given === 'number' && Math.abs(ms) < limits.timestampMsMin) {
      return rejection(
        'invalid_timestamp',
        'a number is milliseconds; this one would be seconds',
        'timestamp',
      );
    }
    // Dates hold 8.64e15 milliseconds around 1970.
    if (!(Math.abs(ms) <= 8.64e15)) {
      return rejection('invalid_timestamp', 'it is neither a Date, a text nor a number', 'timestamp');
    }
    return new Date(ms).toISOString();
  }

  const recorder: Recorder = {
    track(given) {
      const { event, identity, userId, sessionId, properties, timestamp, idempotencyKey } = given ?? {};
      const user = userOf(identity, userId);
      if ('code' in user) return { operation: 'track', reason: user };
      const time = timestampOf(timestamp);
      if (typeof time !== 'string') return { operation: 'track', reason: time };
      return queued('track', user.key, {
        event,
        ...user.fields,
        session_id: sessionId ?? undefined,
        properties: properties ?? undefined,
        timestamp: time,
        idempotency_key: idempotencyKey ?? nextKey(),
      });
    },
    identify(given) {
      const { userId, identity, timestamp } = given ?? {};
      const user = userOf(undefined, userId);
      if ('code' in user) return { operation: 'identify', reason: user };
      const time = timestampOf(timestamp);
      if (typeof time !== 'string') return { operation: 'identify', reason: time };
      return queued('identify', user.key, { ...user.fields, identity: textOf(identity), timestamp: time });
    },
    addUserProperties(given) {
      const { identity, properties } = given ?? {};
      const user = userOf(identity, undefined);
      if ('code' in user) return { operation: 'addUserProperties', reason: user };
      return queued('addUserProperties', user.key, { ...user.fields, properties });
    },
  };
  return {
    track: (given) => guarded('track', () => recorder.track(given)),
    identify: (given) => guarded('identify', () => recorder.identify(given)),
    addUserProperties: (given) => guarded('addUserProperties', () => recorder.addUserProperties(given)),
  };
}

/** If the caller's own code throws while a record is read, such as a getter, only that record is refused. */
function guarded(operation: Operation, make: () => QueuedRecord | Unsendable): QueuedRecord | Unsendable {
  try {
    return make();
  } catch (error) {
    const words = error instanceof Error ? error.message : 'something else than an error was thrown';
    return { operation, reason: rejection('invalid_type', `it cannot be read: ${words}`) };
  }
}

type User = { readonly key: string; readonly fields: { readonly [name: string]: string } };

function userOf(identity: unknown, userId: unknown): User | Rejection {
  const hasIdentity = identity !== undefined && identity !== null;
  const hasUserId = userId !== undefined && userId !== null;
  if (hasIdentity && hasUserId) return rejection('ambiguous_user', outcomes.ambiguous_user.meaning);
  if (!hasIdentity && !hasUserId) return rejection('missing_user', outcomes.missing_user.meaning);
  const text = textOf(hasIdentity ? identity : userId);
  if (typeof text !== 'string') {
    return rejection('invalid_type', 'a user is a text or a number', hasIdentity ? 'identity' : 'user_id');
  }
  return hasIdentity
    ? { key: `i${text}`, fields: { identity: text } }
    : { key: `u${text}`, fields: { user_id: text } };
}

/** A number is read as a user's id in a database. */
function textOf(value: unknown): unknown {
  return (typeof value === 'number' && Number.isFinite(value)) || typeof value === 'bigint'
    ? String(value)
    : value;
}

function queued(operation: Operation, user: string, fields: object): QueuedRecord | Unsendable {
  const text = jsonOf(fields);
  if (typeof text !== 'string') return { operation, reason: text };
  const bytes = Buffer.byteLength(text);
  if (bytes > limits.recordBytesMax) {
    return {
      operation,
      reason: rejection('body_too_large', `it has more than ${limits.recordBytesMax} bytes`),
    };
  }
  return recordOf(operation, user, text, bytes);
}

function recordOf(operation: Operation, user: string, text: string, bytes: number): QueuedRecord {
  return {
    operation,
    user,
    text,
    bytes,
    number: 0,
    takenAt: 0,
    generation: 0,
    place: undefined,
    isSettled: false,
  };
}

function jsonOf(fields: object): string | Rejection {
  try {
    return JSON.stringify(fields);
  } catch {
    // Once more for large integers, which JSON.stringify does not know.
    try {
      return JSON.stringify(fields, (_, value: unknown) =>
        typeof value === 'bigint' ? String(value) : value,
      );
    } catch (error) {
      return rejection('invalid_type', `it cannot be written as JSON: ${(error as Error).message}`);
    }
  }
}

/** What was sent. */
export function readRecord({ text }: QueuedRecord): Readonly<Record<string, unknown>> {
  return JSON.parse(text);
}

/** Letters in the lines of a spool. */
const letters: Readonly<Record<Operation, string>> = { track: 't', addUserProperties: 'p', identify: 'i' };

/** A record as a line of a spool. */
export function lineOf({ operation, text }: QueuedRecord): string {
  return `${letters[operation]}${text}\n`;
}

/** The record of a line; undefined if it is damaged. */
export function recordOfLine(line: string): QueuedRecord | undefined {
  const operation = (Object.keys(letters) as Operation[]).find((name) => letters[name] === line[0]);
  const text = line.slice(1);
  const fields = parseObject(text);
  if (operation === undefined || fields === undefined) return undefined;
  const user =
    operation === 'identify' ? userOf(undefined, fields.user_id) : userOf(fields.identity, fields.user_id);
  return 'code' in user ? undefined : recordOf(operation, user.key, text, Buffer.byteLength(text));
}

/** Whether an unknown line is whole, and so belongs to an operation of a later version of this library. */
export function isOfNewerVersion(line: string): boolean {
  return (
    /^[a-z]/.test(line) &&
    !Object.values(letters).includes(line[0] as string) &&
    parseObject(line.slice(1)) !== undefined
  );
}

function parseObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
