// Copies of what has to be read more than once: stdin, downloads, objects of S3, and the files in archives. They are in one folder, which
// goes with the process.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

let folder: string | undefined;
let files = 0;

/** A path for a new copy. Throws the file system's error if there can be none. */
export function temporaryFile(): string {
  if (folder === undefined) {
    const made = mkdtempSync(join(tmpdir(), 'sluice-import-'));
    process.on('exit', () => rmSync(made, { recursive: true, force: true }));
    folder = made;
  }
  files += 1;
  return join(folder, String(files));
}

/** Why a copy could not be written, in words that say what to do about a full disk. */
export function reasonOf({ code, message }: NodeJS.ErrnoException): string {
  return ['ENOSPC', 'EDQUOT', 'EFBIG'].includes(code ?? '')
    ? `${tmpdir()} has no room for a copy of it (${message}); free some, or set TMPDIR to another folder`
    : message;
}
