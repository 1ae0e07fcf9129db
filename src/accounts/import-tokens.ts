// Tokens of the allowance for imports: 256 random bits, of which only a hash is stored.

import { hash, randomBytes } from 'node:crypto';

/** Makes a token. Only the caller ever sees it. */
export function newImportToken(): string {
  return `sli_${randomBytes(32).toString('base64url')}`;
}

/** A token in the form in which it is stored. It has too many bits to guess, so a plain hash suffices. */
export function hashImportToken(token: string): string {
  return hash('sha256', token, 'hex');
}
