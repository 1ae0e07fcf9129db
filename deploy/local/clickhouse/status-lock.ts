// Tells who holds the engine's lock on its data directory, a flock on the file `status`. The engine checks
// it as well, but only says that it failed.

import { readFileSync, statSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';

/**
 * Settles with undefined when nobody holds the lock (or it cannot be told here), or after `milliseconds`
 * with the process that still does.
 */
export async function untilFree(statusFile: string, milliseconds: number): Promise<number | undefined> {
  const endsAt = performance.now() + milliseconds;
  for (;;) {
    const holder = holderOf(statusFile);
    if (holder === undefined || performance.now() >= endsAt) return holder;
    await pause(20);
  }
}

function holderOf(file: string): number | undefined {
  const inode = statSync(file, { throwIfNoEntry: false })?.ino;
  if (inode === undefined || process.platform !== 'linux') return undefined;
  // 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131074 0 EOF
  const pattern = new RegExp(`^\\d+: FLOCK +\\S+ +WRITE (\\d+) [0-9a-f]+:[0-9a-f]+:${inode} `, 'm');
  const holder = pattern.exec(readFileSync('/proc/locks', 'utf8'))?.[1];
  return holder === undefined ? undefined : Number(holder);
}
