// The names under which users are suppressed: keyed hashes of 96 bits, so that Redis and ClickHouse have no identities, and nobody can
// search for one without the deployment's secret. Each account has its own keys, one for identities and one for user_ids, since the
// identity "7" and the user_id 7 are two users. With a million suppressed users, another user is mistaken for one of them with a
// probability of 1.3e-23.

import { createHmac } from 'node:crypto';
import { lengths } from '../../contract/limits.js';
import type { NameHash } from './name-set.js';
import { createSipHash, type SipHash } from './siphash.js';

/** A name as text: 16 characters for all environments of the account, followed by `@<app_id>` for a single one. */
export type NameText = string;

/** A user as records name it. */
export type User =
  | { readonly identity: string; readonly userId?: undefined }
  | { readonly identity?: undefined; readonly userId: string };

export type NameHasher = ReturnType<typeof createNameHasher>;

/** Hashes the names of one account's users. The returned SipHash holds the hash until the next one is made. */
export function createNameHasher(secret: string, accountId: string) {
  const keys = createHmac('sha256', secret).update(`suppressed users of ${accountId}`).digest();
  const identities = createSipHash(keys.subarray(0, 16));
  const userIds = createSipHash(keys.subarray(16, 32));
  // No identity has more bytes; imported identities have the same limit as all others.
  const bytes = Buffer.alloc(lengths.identityMax * 4);
  const ofText = (sip: SipHash, text: string) => {
    const end = bytes.write(text, 'utf8');
    sip.hash(bytes, 0, end);
    return sip;
  };
  const ofBytes = (sip: SipHash, from: Uint8Array, start: number, end: number) => {
    sip.hash(from, start, end);
    return sip;
  };
  return {
    ofIdentity: (identity: string) => ofText(identities, identity),
    ofUserId: (userId: string) => ofText(userIds, userId),
    /** Like `ofIdentity`, for a text in UTF-8. */
    ofIdentityBytes: (from: Uint8Array, start: number, end: number) => ofBytes(identities, from, start, end),
    ofUserIdBytes: (from: Uint8Array, start: number, end: number) => ofBytes(userIds, from, start, end),
    textOf: ({ identity, userId }: User) =>
      textOfHash(identity === undefined ? ofText(userIds, userId) : ofText(identities, identity)),
  };
}

const words = Buffer.alloc(12);

export function textOfHash(hashed: SipHash): NameText {
  words.writeInt32LE(hashed.first(), 0);
  words.writeInt32LE(hashed.second(), 4);
  words.writeInt32LE(hashed.third(), 8);
  return words.toString('base64url');
}

export function inEnvironment(name: NameText, appId: string): NameText {
  return `${name}@${appId}`;
}

/** The parts of a name; without an app_id it applies in all environments. */
export function readName(text: NameText): { readonly hash: NameHash; readonly appId: string | undefined } {
  words.write(text, 'base64url');
  const hash: NameHash = [words.readInt32LE(0), words.readInt32LE(4), words.readInt32LE(8)];
  return { hash, appId: text.length > 16 ? text.slice(17) : undefined };
}
