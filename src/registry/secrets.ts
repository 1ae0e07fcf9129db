// Secrets that Sluice makes, which are stored as plain hashes: 256 random bits are too many to guess. Keys of environments and programs
// have also an id, which administrators use.

import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { AdministrationError } from '../contract/errors.js';
import { administration } from '../contract/limits.js';
import type { Key } from './documents.js';

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

/** How the secrets and the ids of a kind of key begin. */
export type KeyForm = { readonly secret: string; readonly id: string };

/** Makes a key. Only the caller ever sees the secret. */
export function newKey(form: KeyForm, name: string): { readonly key: Key; readonly secret: string } {
  const secret = newSecret(form.secret);
  const id = `${form.id}${randomBytes(6).toString('hex')}`;
  return { key: { id, name, hash: hashSecret(secret), created_at: new Date().toISOString() }, secret };
}

/** Rejects names that are too long, and keys beyond the maximum. */
export function checkNewKey(name: string, existing: readonly Key[], whose = 'an environment'): void {
  if (name.length > administration.nameMax)
    throw new AdministrationError(`a name must have at most ${administration.nameMax} characters`);
  if (existing.length >= administration.keysMax)
    throw new AdministrationError(`${whose} can have ${administration.keysMax} keys: revoke one first`);
}
