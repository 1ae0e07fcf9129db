// Slows down wrong passwords, by person and by address, across all API processes. Nobody is locked out: a browser in which a person has
// signed in before is recognised by a cookie, and attempts by others do not slow it down.

import { createHmac, randomBytes } from 'node:crypto';
import { signIns } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import type { Person } from '../../registry/documents.js';
import { areEqual } from '../../registry/secrets.js';

export type Attempt = {
  /** The person or the known browser. */
  readonly lane: string;
  readonly address: string;
};

/** The keys under which an attempt is counted. `known`: the cookie of the browser. `secret` is the deployment's. */
export function attemptOf(secret: string, { email, person, known, network }: AttemptBy): Attempt {
  const digest = (text: string) => createHmac('sha256', secret).update(text).digest('hex');
  const isKnown = person !== undefined && isKnownBrowser(secret, person, known);
  return {
    lane: registryKeys.signIns(digest(isKnown ? `browser\0${known}` : `person\0${email}`)),
    // A known browser is slowed down by its own attempts only, not by others behind its address.
    address: registryKeys.signIns(digest(isKnown ? `address of\0${known}` : `address\0${network}`)),
  };
}

export type AttemptBy = {
  readonly email: string;
  readonly person: Person | undefined;
  readonly known: string | undefined;
  readonly network: string;
};

/** Counts an attempt as wrong. Settles with the time to wait before it is checked or, if it is refused, before the next one. */
export async function bookAttempt(
  redis: Redis,
  { lane, address }: Attempt,
): Promise<{ readonly waitMs: number } | { readonly refusedMs: number }> {
  const { waitMsMax, rememberedMs, spacingMsMin, person, address: ofAddress } = signIns;
  const bounds = [person, ofAddress].flatMap(({ freeMax, spacingMsMax }) => [freeMax, spacingMsMax]);
  const args = [waitMsMax, rememberedMs, spacingMsMin, ...bounds];
  const reply = Number(await runScript(redis, scripts.bookSignIn, [lane, address], args));
  return reply < 0 ? { refusedMs: -reply } : { waitMs: reply };
}

/** Takes back an attempt with the right password. The person's wrong attempts are forgotten; those of the address stay. */
export async function forgiveAttempt(redis: Redis, { lane, address }: Attempt): Promise<void> {
  await redis.multi().del(lane).hincrby(address, 'count', -1).pexpire(address, signIns.rememberedMs).exec();
}

/** The cookie of a browser in which a person has signed in. It is valid until the password changes. */
export function knownBrowser(secret: string, person: Person): string {
  return cookieOf(secret, person, randomBytes(12).toString('base64url'));
}

/** Compares the whole cookie: wrong passwords are counted under its text, so no second text may be valid in its place. */
function isKnownBrowser(secret: string, person: Person, cookie = ''): boolean {
  return areEqual(cookie, cookieOf(secret, person, cookie.split('.')[0] as string));
}

function cookieOf(secret: string, { person_id, password }: Person, nonce: string): string {
  const signature = createHmac('sha256', secret)
    .update(`known browser\0${person_id}\0${password?.id}\0${nonce}`)
    .digest('base64url');
  return `${nonce}.${signature}`;
}
