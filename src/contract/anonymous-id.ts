// The user_id of a user whom another system names by its own text, such as the anonymousId of Segment's libraries, which
// is usually a UUID. The same text is the same user_id in every environment and for ever: events that are stored, deletions
// and imports all rely on it. In ClickHouse it is
//   bitShiftRight(reinterpretAsUInt64(reverse(substring(SHA256(concat('anonymous_id', char(0), ID)), 1, 8))), 11)

import { hash } from 'node:crypto';

/** The first 53 bits of a hash of the text, in decimal digits. */
export function userIdOfAnonymousId(anonymousId: string): string {
  const digits = hash('sha256', `anonymous_id\0${anonymousId}`, 'hex');
  const high = Number.parseInt(digits.slice(0, 8), 16);
  const low = Number.parseInt(digits.slice(8, 14), 16) >>> 3;
  return String(high * 2 ** 21 + low);
}
