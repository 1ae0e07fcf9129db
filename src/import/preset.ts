// What the presets share: what they read in a row, the records made of it, parts of keys, and the memory of what rows have said about users.

import { createHash } from 'node:crypto';
import { imports, lengths } from '../contract/limits.js';
import type { SegmentType } from '../contract/segment.js';
import { isoOf } from '../ingest/timestamp.js';
import { isLongerThan } from '../parsing/code-points.js';
import type { TimeFormat } from './times.js';
import { isGiven } from './values.js';
import { utc, type Zone } from './zones.js';

export type Fields = Readonly<Record<string, unknown>>;

/** One record of a row, before it is mended and checked. */
export type Made =
  | { readonly kind: 'event'; readonly event: Fields }
  | { readonly kind: 'message'; readonly type: SegmentType; readonly message: Fields };

/** What a row says about a user, and about the user's device. */
export type Said = {
  readonly user?: unknown;
  readonly device?: string | undefined;
  readonly traits?: Fields;
};

/** An event in a row. */
export type EventRead = {
  readonly event: unknown;
  /** The field that names the event's user. */
  readonly of: Fields;
  readonly timeMs: number;
  readonly key: string;
  readonly session?: string | undefined;
  readonly properties: Fields;
  readonly said?: Said;
};

export type Read =
  | EventRead
  | Extract<Made, { kind: 'message' }>
  | { readonly person: Said; readonly timeMs: number; readonly key: string };

/**
 * Reads a row. Throws RowFault. `key`: the key derived from the row's place. `zone`: the time zone, for exports with local times.
 */
export type ReadRow = (row: Fields, key: string, zone: Zone | undefined) => Read | readonly Read[];

export const inUtc: TimeFormat = { kind: 'auto', zone: utc };
export const seconds: TimeFormat = { kind: 'number', unitNs: 1e9, zone: undefined };
export const milliseconds: TimeFormat = { kind: 'number', unitNs: 1e6, zone: undefined };
export const microseconds: TimeFormat = { kind: 'number', unitNs: 1e3, zone: undefined };

/** A part of a key: a hash that is the same for the same values. */
export function hashOf(...values: readonly unknown[]): string {
  return createHash('sha256')
    .update(JSON.stringify(values.map(String)))
    .digest('base64url')
    .slice(0, 22);
}

/** A key made of these parts. If it would be too long, since the export's own id nearly is, the key is a hash. */
export function joinedKey(...parts: readonly string[]): string {
  const key = parts.join(':');
  return isLongerThan(key, lengths.idempotencyKeyMax) ? `long:${hashOf(key)}` : key;
}

export function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};
}

/** The user of an event or, if there is none, the device. */
export function userOrDevice(user: unknown, device: string | undefined): Fields {
  return isGiven(user) ? { identity: user } : { anonymousId: device };
}

/**
 * Makes the records of what was read. `isShared`: whether a user who has a device is a word that many strangers share, such as null; each
 * call counts one such row.
 */
export function createMaker(isShared: (user: string) => boolean): (read: Read) => readonly Made[] {
  const identify = createUserMemory(isShared);
  return (read) => {
    if ('kind' in read) return [read];
    if ('person' in read) return identify(read.person, read.timeMs, read.key);
    const { event, of, timeMs, key, session, properties, said } = read;
    const named = { event, ...of, timestamp: isoOf(timeMs), idempotency_key: key, session_id: session };
    const made: Made = { kind: 'event', event: { ...named, properties } };
    return said === undefined ? [made] : [made, ...identify(said, timeMs, joinedKey(key, 'user'))];
  };
}

/**
 * Turns what rows say about users into records, each once: identifications of devices, and properties that have changed. Rows may be out of
 * order, so properties are sent only if no later row of the user was read before. If the user is a word such as null, which some systems
 * export, no devices are merged.
 */
function createUserMemory(isShared: (user: string) => boolean) {
  /** The properties in the latest row of each user, whichever device the row is of. */
  const latest = new Map<string, { readonly traits: string; readonly timeMs: number }>();
  /** The pairs of user and device that were already sent. */
  const links = new Set<string>();
  return ({ user, device: ofRow, traits = {} }: Said, timeMs: number, messageId: string): readonly Made[] => {
    const isUser = isGiven(user);
    const device = isUser && ofRow !== undefined && isShared(String(user)) ? undefined : ofRow;
    const person = isUser ? `u${user}` : `d${device}`;
    const text = JSON.stringify(traits);
    const former = latest.get(person);
    const isLatest = text !== '{}' && timeMs >= (former?.timeMs ?? Number.NEGATIVE_INFINITY);
    const hasChanged = isLatest && text !== former?.traits;
    if (latest.size >= imports.rememberedUsersMax) latest.clear();
    if (isLatest) latest.set(person, { traits: text, timeMs });
    const link = `${user}\0${device}`;
    const isNewLink = isUser && device !== undefined && !links.has(link);
    if (links.size >= imports.rememberedUsersMax) links.clear();
    if (isNewLink) links.add(link);
    if (!hasChanged && !isNewLink) return [];
    const message = {
      userId: isUser ? user : undefined,
      anonymousId: device,
      traits: hasChanged ? traits : {},
      timestamp: isoOf(timeMs),
      messageId,
    };
    return [{ kind: 'message', type: 'identify', message }];
  };
}
