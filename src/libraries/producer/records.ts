// Turns calls into records: the JSON to send, with its time and its idempotency key. A record never changes once it is made, so a repeated
// request has the same bytes.

import { randomBytes } from 'node:crypto';
import { epochSeconds } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import type { EventInput, FieldsOf, IdentifyInput, UserPropertiesInput } from '../../contract/records.js';
import { producerLimits as limits } from './limits.js';

export type Operation = 'track' | 'addUserProperties' | 'identify';

/** What the environment does with values that the contract does not allow: refuse the record, or mend it. */
export type Validation = 'strict' | 'lenient';

/** A bigint is sent as its digits, a Date as RFC 3339. */
type Scalar = string | number | bigint | Date;

/** A property of an event; an undefined one is left out. Lenient environments accept everything that JSON has. */
export type PropertyValue<V extends Validation = 'strict'> =
  | Scalar
  | readonly Scalar[]
  | undefined
  | Lenient<V>;

/** A property of a user. Strict environments accept no lists here. */
export type UserPropertyValue<V extends Validation = 'strict'> = Scalar | undefined | Lenient<V>;

type Lenient<V extends Validation> = V extends 'lenient' ? boolean | null | object : never;

/** Keys that strict environments refuse (`reservedEventPropertyKeys` of the contract) and lenient ones drop. */
type Reserved<V extends Validation> = V extends 'lenient' ? never : 'user_id' | 'session_id' | 'screen_name';
type ReservedOfUser<V extends Validation> = V extends 'lenient' ? never : 'user_id';

/** The constraint on a type `T` of event properties. It is stated key by key, since interfaces have no index signature. */
export type EventProperties<T, V extends Validation = 'strict'> = {
  readonly [Key in keyof T]: Key extends Reserved<V> ? never : PropertyValue<V>;
};

export type PropertiesOfUser<T, V extends Validation = 'strict'> = {
  readonly [Key in keyof T]: Key extends ReservedOfUser<V> ? never : UserPropertyValue<V>;
};

export type Timestamp = Date | string | number;

/** The user of an event: exactly one of the two. */
export type EventUser =
  | { readonly identity: string | number; readonly userId?: undefined }
  | { readonly userId: string | number; readonly identity?: undefined };

export type TrackedEvent<T = Readonly<Record<string, PropertyValue>>> = EventUser & {
  /** At most 1024 characters. */
  readonly event: string;
  readonly properties?: T | undefined;
  readonly sessionId?: string | undefined;
  /** When it happened; a number is in milliseconds since 1970. Default: now. */
  readonly timestamp?: Timestamp | undefined;
  /** Two events with the same key count as one. Default: a new key. */
  readonly idempotencyKey?: string | undefined;
};

export type Identification = {
  /** The client library's `userId`: the number of an anonymous user, never an id from your database. */
  readonly userId: string | number;
  readonly identity: string | number;
  readonly timestamp?: Timestamp | undefined;
};

export type UserProperties<T = Readonly<Record<string, UserPropertyValue>>> = {
  readonly identity: string | number;
  readonly properties: T;
};

export type QueuedRecord = ReturnType<typeof recordOf>;

/** Makes a record from whatever a JavaScript program passes. */
export type Recorder = Readonly<Record<Operation, (given: unknown) => QueuedRecord | Unsendable>>;

/** A call that cannot become a record, with its readable fields, under the names of the HTTP interface. */
export type Unsendable = {
  readonly operation: Operation;
  readonly record: Readonly<Record<string, unknown>>;
  readonly reason: Rejection;
};

type Given = Readonly<Record<string, unknown>>;

/** What each operation calls the fields of the HTTP interface. */
const fieldNames: Readonly<{
  track: Record<keyof EventInput, string>;
  identify: Record<keyof IdentifyInput, string>;
  addUserProperties: Record<keyof UserPropertiesInput, string>;
}> = {
  track: {
    event: 'event',
    identity: 'identity',
    user_id: 'userId',
    session_id: 'sessionId',
    properties: 'properties',
    timestamp: 'timestamp',
    idempotency_key: 'idempotencyKey',
  },
  identify: { user_id: 'userId', identity: 'identity', timestamp: 'timestamp' },
  addUserProperties: { identity: 'identity', properties: 'properties' },
};

const callersNames: Readonly<Record<Operation, ReadonlySet<string>>> = {
  track: new Set(Object.values(fieldNames.track)),
  identify: new Set(Object.values(fieldNames.identify)),
  addUserProperties: new Set(Object.values(fieldNames.addUserProperties)),
};

/** `nowMs`: the wall clock. `onUnknown` is called with the fields of a call that its operation does not have. */
export function createRecorder(
  nowMs: () => number,
  onUnknown: (operation: Operation, fields: readonly string[]) => void,
): Recorder {
  // A key begins with a text unique to this process, followed by its number within the process. Such keys compress well.
  const keyPrefix = randomBytes(15).toString('base64url');
  let keys = 0;
  const nextKey = (): string => `${keyPrefix}-${(keys++).toString(36)}`;
  let lastMs = Number.NaN;
  let lastText = '';

  /** The time as text, made once per millisecond: most records are made in the same millisecond as the one before. */
  function now(): string {
    const ms = nowMs();
    if (ms !== lastMs) {
      lastText = new Date(ms).toISOString();
      lastMs = ms;
    }
    return lastText;
  }

  function timestampOf(given: unknown): string | Rejection {
    if (given === undefined || given === null) return now();
    if (typeof given === 'string') return given;
    const ms = typeof given === 'number' ? given : given instanceof Date ? given.getTime() : Number.NaN;
    if (typeof given === 'number' && Math.abs(ms) < epochSeconds.endsBefore) {
      return rejection(
        'invalid_timestamp',
        'a number is milliseconds; this one would be seconds',
        'timestamp',
      );
    }
    // Dates can hold 8.64e15 milliseconds on either side of 1970.
    if (!(Math.abs(ms) <= 8.64e15)) {
      return rejection('invalid_timestamp', 'it is neither a Date, a string nor a number', 'timestamp');
    }
    return new Date(ms).toISOString();
  }

  const makers: Readonly<Record<Operation, (given: Given) => QueuedRecord | Rejection>> = {
    track({ event, identity, userId, sessionId, properties, timestamp, idempotencyKey }) {
      const user = userOf(identity, userId);
      if ('code' in user) return user;
      const time = timestampOf(timestamp);
      if (typeof time !== 'string') return time;
      return queued('track', user.key, {
        event,
        ...user.fields,
        session_id: sessionId ?? undefined,
        properties: properties ?? undefined,
        timestamp: time,
        idempotency_key: idempotencyKey ?? nextKey(),
      } satisfies Omit<FieldsOf<EventInput>, 'identity' | 'user_id'>);
    },
    identify({ userId, identity, timestamp }) {
      const user = userOf(undefined, userId);
      if ('code' in user) return user;
      const time = timestampOf(timestamp);
      if (typeof time !== 'string') return time;
      return queued('identify', user.key, {
        ...user.fields,
        identity: textOf(identity),
        timestamp: time,
      } satisfies Omit<FieldsOf<IdentifyInput>, 'user_id'>);
    },
    addUserProperties({ identity, properties }) {
      const user = userOf(identity, undefined);
      if ('code' in user) return user;
      return queued('addUserProperties', user.key, {
        ...user.fields,
        properties,
      } satisfies Omit<FieldsOf<UserPropertiesInput>, 'identity'>);
    },
  };

  function record(operation: Operation, given: unknown): QueuedRecord | Unsendable {
    const made = make(operation, given);
    return 'code' in made ? unsendable(operation, given, made) : made;
  }

  /** If the caller's own code, such as a getter, throws while a record is read, only that record is refused. */
  function make(operation: Operation, given: unknown): QueuedRecord | Rejection {
    const names = callersNames[operation];
    if (typeof given !== 'object' || given === null)
      return rejection('invalid_type', `${operation} takes one object: { ${[...names].join(', ')} }`);
    try {
      const unknown: string[] = [];
      for (const name in given) if (!names.has(name)) unknown.push(name);
      if (unknown.length > 0) onUnknown(operation, unknown);
      return makers[operation](given as Given);
    } catch (error) {
      const words = error instanceof Error ? error.message : 'something other than an error was thrown';
      return rejection('invalid_type', `it cannot be read: ${words}`);
    }
  }

  return {
    track: (given) => record('track', given),
    identify: (given) => record('identify', given),
    addUserProperties: (given) => record('addUserProperties', given),
  };
}

/** Leaves out the fields that cannot be read or written, and names the first of them. */
function unsendable(operation: Operation, given: unknown, reason: Rejection): Unsendable {
  const record: Record<string, unknown> = {};
  let field: string | undefined;
  for (const [wireName, name] of Object.entries(fieldNames[operation])) {
    const value = readable(given, name);
    if (value === unreadable) field ??= wireName;
    else if (value !== undefined) record[wireName] = value;
  }
  return { operation, record, reason: field === undefined ? reason : { field, ...reason } };
}

const unreadable = Symbol('unreadable');

function readable(given: unknown, name: string): unknown {
  try {
    const text = jsonOf({ value: (given as Given | null | undefined)?.[name] });
    return typeof text === 'string' ? (JSON.parse(text) as { value?: unknown }).value : unreadable;
  } catch {
    return unreadable;
  }
}

type User = { readonly key: string; readonly fields: { readonly [name: string]: string } };

function userOf(identity: unknown, userId: unknown): User | Rejection {
  const hasIdentity = identity !== undefined && identity !== null;
  const hasUserId = userId !== undefined && userId !== null;
  if (hasIdentity && hasUserId) return rejection('ambiguous_user');
  if (!hasIdentity && !hasUserId) return rejection('missing_user');
  const text = textOf(hasIdentity ? identity : userId);
  if (typeof text !== 'string') {
    return rejection('invalid_type', 'a user is a string or a number', hasIdentity ? 'identity' : 'user_id');
  }
  return hasIdentity
    ? { key: `i${text}`, fields: { identity: text } }
    : { key: `u${text}`, fields: { user_id: text } };
}

/** A number counts as a user's id in a database, and is sent as text. */
function textOf(value: unknown): unknown {
  return (typeof value === 'number' && Number.isFinite(value)) || typeof value === 'bigint'
    ? String(value)
    : value;
}

function queued(operation: Operation, user: string, fields: object): QueuedRecord | Rejection {
  const text = jsonOf(fields);
  if (typeof text !== 'string') return text;
  const bytes = Buffer.byteLength(text);
  if (bytes > limits.recordBytesMax)
    return rejection('body_too_large', `it has more than ${limits.recordBytesMax} bytes`);
  return recordOf(operation, user, text, bytes);
}

/** `user`: records of the same user keep their order. `text`: the record as JSON. */
function recordOf(operation: Operation, user: string, text: string, bytes: number) {
  return {
    operation,
    user,
    text,
    bytes,
    /** Its position in the order of the calls. */
    number: 0,
    /** When it was added to memory, in milliseconds of the steady clock. */
    takenAt: 0,
    /** The number of the flush that waits for it. */
    generation: 0,
    /** Its position in the spool; undefined until that is known, and without a spool. */
    place: undefined as { readonly file: number; readonly line: number } | undefined,
    isSettled: false,
  };
}

function jsonOf(fields: object): string | Rejection {
  try {
    return JSON.stringify(fields);
  } catch {
    // Tried again for large integers, which JSON.stringify does not support.
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

/** The letters of the operations in the lines of a spool. */
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

/** Whether a line that cannot be read is complete: it was then written by a later version of this library. */
export function isOfNewerVersion(line: string): boolean {
  return (
    /^[a-z]/.test(line) &&
    !Object.values(letters).includes(line[0] as string) &&
    parseObject(line.slice(1)) !== undefined
  );
}

/** The object in a JSON text; undefined if it has none. */
export function parseObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
