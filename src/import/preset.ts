// What the presets share: the records made from a row, parts of keys, times, and the memory of what rows have said about users.

import { createHash } from 'node:crypto';
import { imports, lengths } from '../contract/limits.js';
import type { SegmentType } from '../contract/segment.js';
import { isoOf } from '../ingest/timestamp.js';
import { isLongerThan } from '../parsing/code-points.js';
import { readTime, type TimeFormat } from './times.js';
import { isGiven } from './values.js';
import { utc, type Zone } from './zones.js';

export type Fields = Readonly<Record<string, unknown>>;

/** One record of a row, before it is mended and checked. */
export type Made =
  | { readonly kind: 'event'; readonly event: Fields }
  | { readonly kind: 'message'; readonly type: SegmentType; readonly message: Fields };

/** Makes the records of a row, or says why there are none. `key`: the key derived from the row's place. */
export type Preset = (row: Fields, key: string) => readonly Made[] | string;

export type PresetOptions = {
  /** The time zone, for exports with local times. */
  readonly zone: Zone | undefined;
  /** Whether a user who has a device is a word that many strangers share, such as null. Each call counts one such row. */
  readonly isShared: (user: string) => boolean;
};

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

/** A row's time in milliseconds since 1970, or why it has none. Without a time, a row would get that of the import. */
export function instantIn(column: string, value: unknown, format: TimeFormat): number | string {
  if (!isGiven(value)) return `has no time in the column ${column}`;
  const time = readTime(value, format);
  return typeof time === 'number' ? time : `has a time in the column ${column} that ${time}`;
}

/** What a row says about a user, and about the user's device. */
export type Said = {
  readonly user: unknown;
  readonly device: string | undefined;
  readonly traits: Fields;
  readonly timeMs: number;
  readonly messageId: string;
};

/**
 * Turns what rows say about users into records, each once: identifications of devices, and properties that have changed. Rows may be out of
 * order, so properties are sent only if no later row of the user was read before. If the user is a word such as null, which some systems
 * export, no devices are merged.
 */
export function createUserMemory({
  isShared,
}: Pick<PresetOptions, 'isShared'>): (said: Said) => readonly Made[] {
  /** The properties in the latest row of each user, whichever device the row is of. */
  const latest = new Map<string, { readonly traits: string; readonly timeMs: number }>();
  /** The pairs of user and device that were already sent. */
  const links = new Set<string>();
  return ({ user, device: ofRow, traits, timeMs, messageId }) => {
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
