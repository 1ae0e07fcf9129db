// The latest rejected records of every environment, to find out why records are missing: when, why, which field, how large. An entry never
// has a value, a text or an identity, nor anything that would link entries to one user. So a deletion finds nothing to delete here, even if
// an entry is written after it. Entries are in Redis, limited in number and time. The process gathers them and writes once a second.
// Rejections above the limit of a second are not listed, so each request of a flood costs only a comparison. Accepted requests never come
// here.

import { randomBytes } from 'node:crypto';
import { lengths, rejectedRecords } from '../../contract/limits.js';
import type { OutcomeCode } from '../../contract/outcomes.js';
import { recordSchemas } from '../../contract/records.js';
import {
  bulkEventsSchema,
  bulkUsersSchema,
  collectSchema,
  envelopeSchema,
  eventMessageSchema,
} from '../../contract/schemas.js';
import { segmentBatchSchema, segmentMessageSchema } from '../../contract/segment.js';
import type { Log } from '../../log.js';
import { isLongerThan } from '../../parsing/code-points.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { repeat } from '../../repeat.js';
import { rejectedWrites } from '../../tuning.js';

/** The name of a kind of record, or `collect` or `segment`. */
export type EndpointName = string;

/** A rejected record, or a rejected request, as stored and printed. */
export type RejectedEntry = {
  /** ISO 8601, UTC, by the clock of the API process. */
  readonly time: string;
  readonly endpoint: EndpointName;
  readonly code: OutcomeCode;
  /** Null if it concerns the whole record. Names that may be personal data are replaced by an asterisk. */
  readonly field: string | null;
  /** The size of the body or, for an element of a bulk request, of the element as JSON without white space. */
  readonly bytes: number;
  /** The position in its bulk request; null for a whole request. */
  readonly index: number | null;
};

type Refusal = { readonly code: OutcomeCode; readonly field?: string };

/** The endpoint to which a rejected record was sent. */
export type RejectedSource = {
  readonly endpoint: EndpointName;
  readonly appId: string;
};

export type RejectedRecords = {
  /** Notes a refused request; `value` is its document, `bytes` the size of its body. */
  noteRequest(source: RejectedSource, refusal: Refusal, value: unknown, bytes: number): void;
  /** Notes refused elements of a bulk request. */
  noteElements(
    source: RejectedSource,
    refusals: readonly (Refusal & { readonly index: number })[],
    elements: readonly unknown[],
  ): void;
  /** Writes the remaining entries. */
  close(): Promise<void>;
};

/** Starts to gather rejected records and to write them. `clock`: milliseconds since 1970. */
export function keepRejectedIn(redis: Redis, log: Log, clock: () => number = Date.now): RejectedRecords {
  let waiting = new Map<string, RejectedEntry[]>();
  let waitingCount = 0;
  let written = 0;
  // Members of a sorted set are unique, but two records may be rejected at the same time for the same reason.
  const processPart = randomBytes(6).toString('base64url');

  function roomOf(appId: string): number {
    const ofEnvironment = rejectedRecords.perEnvironmentMax - (waiting.get(appId)?.length ?? 0);
    return Math.min(ofEnvironment, rejectedWrites.waitingMax - waitingCount);
  }

  function add(appId: string, entry: RejectedEntry): void {
    const entries = waiting.get(appId);
    if (entries === undefined) waiting.set(appId, [entry]);
    else entries.push(entry);
    waitingCount += 1;
  }

  async function write(): Promise<void> {
    const nowMs = clock();
    dropOld(nowMs);
    if (waitingCount === 0 || redis.status !== 'ready') return;
    const batch = waiting;
    waiting = new Map();
    waitingCount = 0;
    const transaction = redis.multi();
    for (const [appId, entries] of batch) {
      const key = registryKeys.rejected(appId);
      const members = entries.flatMap((entry) => {
        written += 1;
        const unique = `${processPart}.${String(written).padStart(12, '0')}`;
        return [Date.parse(entry.time), `${unique}:${JSON.stringify(entry)}`];
      });
      transaction
        .zadd(key, ...members)
        .zremrangebyscore(key, '-inf', nowMs - rejectedRecords.ageMsMax)
        .zremrangebyrank(key, 0, -rejectedRecords.perEnvironmentMax - 1)
        .pexpire(key, rejectedRecords.ageMsMax);
    }
    await transaction.exec();
  }

  function dropOld(nowMs: number): void {
    const oldest = new Date(nowMs - rejectedWrites.waitingMsMax).toISOString();
    waitingCount = 0;
    for (const [appId, entries] of waiting) {
      const kept = entries.filter(({ time }) => time >= oldest);
      if (kept.length === 0) waiting.delete(appId);
      else waiting.set(appId, kept);
      waitingCount += kept.length;
    }
  }

  const lost = (error: unknown) => log.warn({ error }, 'rejected records are not listed');
  const { stop } = repeat({ work: write, everyMs: rejectedWrites.everyMs, failed: lost });
  return {
    noteRequest: (source, refusal, value, bytes) => {
      if (roomOf(source.appId) > 0) add(source.appId, describe(clock(), source, refusal, value, bytes, null));
    },
    noteElements: (source, refusals, elements) => {
      let measured = 0;
      for (const refusal of refusals.slice(0, roomOf(source.appId))) {
        if (measured > rejectedWrites.measuredBytesMax) return;
        const element = elements[refusal.index];
        const bytes = Buffer.byteLength(JSON.stringify(element));
        measured += bytes;
        add(source.appId, describe(clock(), source, refusal, element, bytes, refusal.index));
      }
    },
    close: async () => {
      await stop();
      await write().catch(lost);
    },
  };
}

/** The entries of an environment, from the latest. */
export async function listRejected(redis: Redis, appId: string): Promise<RejectedEntry[]> {
  const members = await redis.zrange(
    registryKeys.rejected(appId),
    '+inf',
    String(Date.now() - rejectedRecords.ageMsMax),
    'BYSCORE',
    'REV',
    'LIMIT',
    0,
    rejectedRecords.perEnvironmentMax,
  );
  return members.map(entryOf);
}

function entryOf(member: string): RejectedEntry {
  return JSON.parse(member.slice(member.indexOf(':') + 1)) as RejectedEntry;
}

function describe(
  nowMs: number,
  { endpoint }: RejectedSource,
  { code, field }: Refusal,
  value: unknown,
  bytes: number,
  index: number | null,
): RejectedEntry {
  const record = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
  const identity = textOf(record.identity);
  const userId = textOf(record.user_id);
  const segmentUsers = [textOf(record.userId), textOf(record.anonymousId)];
  return {
    time: new Date(nowMs).toISOString(),
    endpoint,
    code,
    field: field === undefined ? null : plainField(field, [identity, userId, ...segmentUsers]),
    bytes,
    index,
  };
}

/** The text of a value that may name a user; numbers become text. Undefined if it is longer than allowed. */
function textOf(value: unknown): string | undefined {
  if (Number.isSafeInteger(value)) return String(value);
  if (typeof value !== 'string' || value === '') return undefined;
  return isLongerThan(value, lengths.identityMax) ? undefined : value;
}

const contractFields = new Set(
  [
    envelopeSchema.properties,
    bulkEventsSchema.properties,
    bulkUsersSchema.properties,
    collectSchema.properties,
    eventMessageSchema.properties,
    segmentMessageSchema.properties,
    segmentBatchSchema.properties,
    ...Object.values(recordSchemas),
  ].flatMap((fields) => Object.keys(fields)),
);
/** Names that programmers give to properties; not addresses, phone numbers, or anything else that may be personal. */
const plainName = /^(?!.*\d{5})[A-Za-z_$][\w$.-]{0,63}$/;

/** A field as it is counted: its name if the service knows it, or an asterisk. So there are few different ones, and none names a person. */
export function countedField(field: string): string {
  if (contractFields.has(field)) return field;
  const [parent] = /^(properties|traits)\./.exec(field) ?? [];
  return parent === undefined ? '*' : `${parent}*`;
}

/** A field's path, with an asterisk for every name that the sender chose and that may be personal data. */
function plainField(field: string, user: readonly (string | undefined)[]): string {
  if (contractFields.has(field)) return field;
  const dot = field.indexOf('.');
  const name = field.slice(dot + 1);
  if (!/^(properties|traits)\./.test(field)) return '*';
  const lower = name.toLowerCase();
  const plain =
    plainName.test(name) && !user.some((text) => text !== undefined && lower.includes(text.toLowerCase()));
  return plain ? field : `${field.slice(0, dot)}.*`;
}
