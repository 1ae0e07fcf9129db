// Secrets that Sluice makes: 256 random bits, too many to guess, so that a plain hash of them suffices to store.

import { hash, randomBytes, timingSafeEqual } from 'node:crypto';

/** Makes a secret that begins with `prefix`. */
export function newSecret(prefix = ''): string {
  return prefix + randomBytes(32).toString('base64url');
}

/** A secret in the form in which it is stored. */
export function hashSecret(secret: string): string {
  return hash('sha256', secret, 'hex');
}

/** Compares in constant time, for texts that a caller could otherwise find out character by character. */
export function areEqual(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
