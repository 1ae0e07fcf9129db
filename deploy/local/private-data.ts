// Keeps other users of the machine out of DATA_DIR: only its owner can read what a start creates there, and a start closes what is open to
// others, as in a copy of a DATA_DIR.

import { chmodSync, lstatSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { StartError } from './start-error.js';

const othersMask = 0o077;
const stickyBit = 0o1000;

/** From now on, only their owner can read the files that this process and its children create. */
export function makeFilesPrivate(): void {
  process.umask(othersMask);
}

/**
 * Closes the folder first, so that nobody can get in while this runs, then its contents. To be called while no process works in the folder.
 * Throws StartError when the folder cannot be closed.
 */
export function closeToOthers(dataDir: string): void {
  const { mode, uid } = statSync(dataDir);
  if ((mode & stickyBit) !== 0) {
    throw new StartError(`DATA_DIR ${dataDir} is shared with other users: give Sluice a folder of its own`);
  }
  if ((mode & othersMask) !== 0) {
    if (!mayChange(uid)) {
      throw new StartError(
        `DATA_DIR ${dataDir} is open to other users and belongs to one of them (uid ${uid})`,
      );
    }
    chmodSync(dataDir, mode & 0o700);
  }
  closeContents(dataDir);
}

/** Skips symbolic links, which may lead out of the folder, and other users' files, which are unreachable in a closed folder. */
function closeContents(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    const { mode, uid } = lstatSync(path);
    if (entry.isSymbolicLink() || !mayChange(uid)) continue;
    if ((mode & othersMask) !== 0) chmodSync(path, mode & 0o700);
    if (entry.isDirectory()) closeContents(path);
  }
}

function mayChange(uid: number): boolean {
  const own = process.getuid?.();
  return own === 0 || own === uid;
}
