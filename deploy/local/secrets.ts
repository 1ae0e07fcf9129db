// Owns the secrets that a start creates: passwords of the embedded services and the ADMIN_TOKEN, in files of DATA_DIR that only their owner
// can read.

import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

/** Returns the secret of an earlier start, or creates one. Throws when the file cannot be read or written. */
export function findOrMakeSecret(file: string): string {
  const found = read(file);
  if (found !== '') return found;
  const secret = newSecret();
  writeFileSync(file, `${secret}\n`, { mode: 0o600, flush: true });
  return secret;
}

/** Consists of letters, digits, - and _, which need no escaping in a URL, a shell, a header, or a file of Redis or ClickHouse. */
export function newSecret(): string {
  return randomBytes(24).toString('base64url');
}

/** The secret; empty if there is none, or if a first start was interrupted while writing it. */
function read(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
}
