// Secrets that Sluice makes, which are stored as plain hashes: 256 random bits are too many to guess.

import { hash, randomBytes, timingSafeEqual } from 'node:crypto';

export function newSecret(prefix = ''): string {
  return prefix + randomBytes(32).toString('base64url');
}

/** The hash of a secret, or of another text that names something without saying it. */
export function hashSecret(secret: string): string {
  return hash('sha256', secret, 'hex');
}

/** Compares in constant time, for texts that a caller could otherwise find out character by character. */
export function areEqual(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
