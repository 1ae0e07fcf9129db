// Keys of environments and programs: a secret with 256 random bits, of which only a hash is stored, and an id that administrators use.

import { hash, randomBytes } from 'node:crypto';
import { AdministrationError } from '../contract/errors.js';
import { administration } from '../contract/limits.js';
import type { Key } from './documents.js';

/** How the secrets and the ids of a kind of key begin. */
export type KeyForm = { readonly secret: string; readonly id: string };

/** Makes a key. Only the caller ever sees the secret. */
export function newKey(form: KeyForm, name: string): { readonly key: Key; readonly secret: string } {
  const secret = `${form.secret}${randomBytes(32).toString('base64url')}`;
  const id = `${form.id}${randomBytes(6).toString('hex')}`;
  return { key: { id, name, hash: hashKey(secret), created_at: new Date().toISOString() }, secret };
}

/** A secret as it is stored. It has too many bits to guess, so a plain hash suffices. */
export function hashKey(secret: string): string {
  return hash('sha256', secret, 'hex');
}

/** Rejects names that are too long, and keys beyond the maximum. */
export function checkNewKey(name: string, existing: readonly Key[], whose = 'an environment'): void {
  if (name.length > administration.nameMax)
    throw new AdministrationError(`a name must have at most ${administration.nameMax} characters`);
  if (existing.length >= administration.keysMax)
    throw new AdministrationError(`${whose} can have ${administration.keysMax} keys: revoke one first`);
}
