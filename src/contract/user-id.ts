// The form of a user_id: the text that the client library makes.

import { hash } from 'node:crypto';
import { userIdMax } from './limits.js';

export const userIdForm = /^(?:0|[1-9][0-9]{0,15})$/;

/** Whether `text` is the canonical decimal form of an integer from 0 to 2^53 - 1. */
export function isUserId(text: string): boolean {
  return userIdForm.test(text) && (text.length < 16 || Number(text) <= userIdMax);
}

/**
 * The user_id of a user whom another system names by its own text, such as the anonymousId of Segment's libraries, which is usually a UUID.
 * The same text is the same user_id in every environment and for ever: events that are stored, deletions and imports all rely on it. In
 * ClickHouse it is bitShiftRight(reinterpretAsUInt64(reverse(substring(SHA256(concat('anonymous_id', char(0), ID)), 1, 8))), 11).
 */
export function userIdOfAnonymousId(anonymousId: string): string {
  const digits = hash('sha256', `anonymous_id\0${anonymousId}`, 'hex');
  const high = Number.parseInt(digits.slice(0, 8), 16);
  const low = Number.parseInt(digits.slice(8, 14), 16) >>> 3;
  return String(high * 2 ** 21 + low);
}
