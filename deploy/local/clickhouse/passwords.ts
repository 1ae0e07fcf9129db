// Owns the passwords of the embedded ClickHouse's users: files in DATA_DIR that only their owner can read.

import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

/** Finds the password of an earlier start, or makes one. Throws when the file cannot be read or written. */
export function findOrMakePassword(file: string): string {
  const found = read(file);
  if (found !== '') return found;
  const made = newPassword();
  writeFileSync(file, `${made}\n`, { mode: 0o600, flush: true });
  return made;
}

/** Letters, digits, - and _: it needs no escape in a URL, a shell or a file of ClickHouse. */
export function newPassword(): string {
  return randomBytes(24).toString('base64url');
}

/** Empty when there is none, or a first start was cut off while it wrote it. */
function read(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
}
