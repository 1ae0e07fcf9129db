// Keys of environments and programs: a secret, of which only a hash is stored, and an id that administrators use.

import { randomBytes } from 'node:crypto';
import { AdministrationError } from '../contract/errors.js';
import { administration } from '../contract/limits.js';
import type { Key } from './documents.js';
import { hashSecret, newSecret } from './secrets.js';

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
