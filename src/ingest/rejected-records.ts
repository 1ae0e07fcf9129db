// The last rejected records of every environment, for whoever has to find out why records are missing: when,
// why, which field, how large. Never a value, a text or an identity, nor anything by which entries of one user could be
// told: a deletion has nothing to look for here, also when an entry is written after it. Kept in Redis, bounded in
// number and time. Gathered in the process and written once a second; what is rejected beyond a second's bound is
// not listed, so that a flood of bad requests costs a comparison each. Good requests never come here.

import { randomBytes } from 'node:crypto';
import { lengths } from '../contract/limits.js';
import type { OutcomeCode } from '../contract/outcomes.js';
import { describeError, type Log } from '../log.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { isLongerThan } from './code-points.js';
import type { RecordKind } from './record-kind.js';

export const rejectedBounds = {
  perEnvironmentMax: 100,
  ageMsMax: 7 * 24 * 60 * 60 * 1000,
  /** Entries of all environments that wait in one process. */
  waitingMax: 2_000,
  writeEveryMs: 1_000,
  /** Entries that could not be written by then are dropped. */
  waitingMsMax: 5_000,
} as const;

export type EndpointName = RecordKind['name'] | 'collect';

/** One rejected record, or a rejected request; as it is kept and printed. */
export type RejectedEntry = {
  /** ISO 8601, UTC, by the clock of the API process. */
  readonly time: string;
  readonly endpoint: EndpointName;
  readonly code: OutcomeCode;
  /** Null when it is the whole record. Names that may be personal data are replaced by an asterisk. */
  readonly field: string | null;
  /** Of the body; of an element of a bulk request its own, as JSON without white space. */
  readonly bytes: number;
  /** Position in its bulk request; null for a whole request. */
  readonly index: number | null;
};

type Refusal = { readonly code: OutcomeCode; readonly field?: string };

/** Where a rejected record was sent. */
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
  /** Writes what is left. */
  close(): Promise<void>;
};

/** Starts to gather rejected records and to write them. `clock`: milliseconds since 1970. */
export function keepRejectedIn(redis: Redis, log: Log, clock: () => number = Date.now): RejectedRecords {
  let waiting = new Map<string, RejectedEntry[]>();
  let waitingCount = 0;
  let written = 0;
  // Members of a sorted set are unique by their text; two records may be rejected alike at once.
  const processPart = randomBytes(6).toString('base64url');

  function roomOf(appId: string): number {
    const ofEnvironment = rejectedBounds.perEnvironmentMax - (waiting.get(appId)?.length ?? 0);
    return Math.min(ofEnvironment, rejectedBounds.waitingMax - waitingCount);
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
        .zremrangebyscore(key, '-inf', nowMs - rejectedBounds.ageMsMax)
        .zremrangebyrank(key, 0, -rejectedBounds.perEnvironmentMax - 1)
        .pexpire(key, rejectedBounds.ageMsMax);
    }
    await transaction.exec();
  }

  function dropOld(nowMs: number): void {
    const oldest = new Date(nowMs - rejectedBounds.waitingMsMax).toISOString();
    waitingCount = 0;
    for (const [appId, entries] of waiting) {
      const kept = entries.filter(({ time }) => time >= oldest);
      if (kept.length === 0) waiting.delete(appId);
      else waiting.set(appId, kept);
      waitingCount += kept.length;
    }
  }

  const lost = (error: unknown) =>
    log.warn({ error: describeError(error) }, 'rejected records are not listed');
  const timer = setInterval(() => void write().catch(lost), rejectedBounds.writeEveryMs);
  return {
    noteRequest: (source, refusal, value, bytes) => {
      if (roomOf(source.appId) > 0) add(source.appId, describe(clock(), source, refusal, value, bytes, null));
    },
    noteElements: (source, refusals, elements) => {
      for (const refusal of refusals.slice(0, roomOf(source.appId))) {
        const element = elements[refusal.index];
        const bytes = Buffer.byteLength(JSON.stringify(element));
        add(source.appId, describe(clock(), source, refusal, element, bytes, refusal.index));
      }
    },
    close: async () => {
      clearInterval(timer);
      await write().catch(lost);
    },
  };
}

/** The entries of an environment, the latest first. */
export async function listRejected(redis: Redis, appId: string): Promise<RejectedEntry[]> {
  const members = await redis.zrange(
    registryKeys.rejected(appId),
    '+inf',
    String(Date.now() - rejectedBounds.ageMsMax),
    'BYSCORE',
    'REV',
    'LIMIT',
    0,
    rejectedBounds.perEnvironmentMax,
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
  return {
    time: new Date(nowMs).toISOString(),
    endpoint,
    code,
    field: field === undefined ? null : plainField(field, [identity, userId]),
    bytes,
    index,
  };
}

/** What may be the name of a user: also as a number, which is rejected or mended; never longer than allowed. */
function textOf(value: unknown): string | undefined {
  if (Number.isSafeInteger(value)) return String(value);
  if (typeof value !== 'string' || value === '') return undefined;
  return isLongerThan(value, lengths.identityMax) ? undefined : value;
}

const contractFields =
  /^(?:app_id|event|identity|user_id|session_id|timestamp|idempotency_key|events|users|properties|sent_at|messages|id|type|time|autocaptured)$/;
/** What programmers name properties; not addresses, phone numbers, or whatever else may be somebody. */
const plainName = /^(?!.*\d{5})[A-Za-z_$][\w$.-]{0,63}$/;

/** A field's path with an asterisk for every name that a sender made up and that may be personal data. */
function plainField(field: string, user: readonly (string | undefined)[]): string {
  if (contractFields.test(field)) return field;
  const dot = field.indexOf('.');
  const name = field.slice(dot + 1);
  if (!field.startsWith('properties.')) return '*';
  const lower = name.toLowerCase();
  const plain =
    plainName.test(name) && !user.some((text) => text !== undefined && lower.includes(text.toLowerCase()));
  return plain ? field : 'properties.*';
}
