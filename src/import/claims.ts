// The state file and the rejects file of an import belong to one process at a time: two would truncate and replace each other's content. A
// claim is a folder beside the file that names the process, as for a spool. The claim of a process that is gone does not count.

import { mkdirSync, rmdirSync } from 'node:fs';
import { claimFolder, releaseFolder } from '../libraries/producer/spool-folder.js';
import { ImportError, type ImportOptions } from './options.js';

/** Claims both files; returns a function that releases them. Throws ImportError if another import has one of them. */
export function claimFiles({ stateFile, rejectsFile }: Pick<ImportOptions, 'stateFile' | 'rejectsFile'>) {
  const claimed: string[] = [];
  const release = () => {
    for (const folder of claimed) {
      releaseFolder(folder);
      try {
        rmdirSync(folder);
      } catch {
        // Another import is claiming it.
      }
    }
  };
  try {
    for (const [option, file] of [
      ['--state', stateFile],
      ['--rejects', rejectsFile],
    ] as const)
      claimed.push(claim(option, file));
  } catch (error) {
    release();
    throw error;
  }
  return release;
}

function claim(option: string, file: string): string {
  const folder = `${file}.owner`;
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== 'EEXIST') throw new ImportError(`${option} ${file}: it cannot be written: ${message}`);
  }
  try {
    claimFolder(folder);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const why =
      code === undefined
        ? 'another import is using it; give this one a --state and a --rejects of its own'
        : `it cannot be written: ${message}`;
    throw new ImportError(`${option} ${file}: ${why}`);
  }
  return folder;
}
