// What the presets share: what a row becomes, parts of keys, times, and the memory of what was said about users.

import { createHash } from 'node:crypto';
import { imports } from '../contract/limits.js';
import type { SegmentType } from '../contract/segment.js';
import { isoOf } from '../ingest/timestamp.js';
import { readTime, type TimeFormat } from './times.js';
import { isGiven } from './values.js';
import { utc } from './zones.js';

export type Fields = Readonly<Record<string, unknown>>;

/** One record of a row, before it is mended and checked. */
export type Made =
  | { readonly kind: 'event'; readonly event: Fields }
  | { readonly kind: 'message'; readonly type: SegmentType; readonly message: Fields };

/** The records of a row, or why there are none. `key` follows from the row's place. */
export type Preset = (row: Fields, key: string) => readonly Made[] | string;

export const inUtc: TimeFormat = { kind: 'auto', zone: utc };
export const seconds: TimeFormat = { kind: 'number', unitNs: 1e9, zone: undefined };
export const milliseconds: TimeFormat = { kind: 'number', unitNs: 1e6, zone: undefined };
export const microseconds: TimeFormat = { kind: 'number', unitNs: 1e3, zone: undefined };

/** A part of a key: the same for the same values, however long they are. */
export function hashOf(...values: readonly unknown[]): string {
  return createHash('sha256')
    .update(JSON.stringify(values.map(String)))
    .digest('base64url')
    .slice(0, 22);
}

export function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};
}

/** Milliseconds since 1970, or why there are none. A row without a time would happen at the time of the import. */
export function instantIn(column: string, value: unknown, format: TimeFormat): number | string {
  if (!isGiven(value)) return `has no time in the column ${column}`;
  const time = readTime(value, format);
  return typeof time === 'number' ? time : `has a time in the column ${column} that ${time}`;
}

/** What a row says of a user, and of the device that it names. */
export type Said = {
  readonly user: unknown;
  readonly device: string | undefined;
  readonly traits: Fields;
  readonly timeMs: number;
  readonly messageId: string;
};

/**
 * Makes identifications of what rows say, each once: a device of a user, and properties that have changed. Rows may be out of
 * order, so properties are sent only if no later row of the user was read before.
 */
export function createUserMemory(): (said: Said) => readonly Made[] {
  /** What was said last about a user on a device, and the latest time of a user's properties. */
  const known = new Map<string, string>();
  const latest = new Map<string, number>();
  return ({ user, device, traits, timeMs, messageId }) => {
    const isUser = isGiven(user);
    const hasTraits = Object.keys(traits).length > 0;
    const state = JSON.stringify([device, traits]);
    const pair = `${user ?? ''}\0${device ?? ''}`;
    if (known.get(pair) === state || (!hasTraits && (!isUser || device === undefined))) return [];
    const person = isUser ? `u${user}` : `d${device}`;
    const isLate = timeMs < (latest.get(person) ?? Number.NEGATIVE_INFINITY);
    const isSent = hasTraits && !isLate;
    const isLinkKnown = !isUser || device === undefined || known.has(pair);
    if (known.size >= imports.rememberedUsersMax) known.clear();
    if (latest.size >= imports.rememberedUsersMax) latest.clear();
    if (!isLate) {
      known.set(pair, state);
      if (hasTraits) latest.set(person, timeMs);
    }
    if (hasTraits && !isSent && isLinkKnown) return [];
    const message = {
      userId: isUser ? user : undefined,
      anonymousId: device,
      traits: isSent ? traits : {},
      timestamp: isoOf(timeMs),
      messageId,
    };
    return [{ kind: 'message', type: 'identify', message }];
  };
}
