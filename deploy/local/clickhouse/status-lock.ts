// Waits for the engine's lock on its data directory, a flock on the file `status`. The engine also checks the lock, but only reports that it
// could not take it.

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { lockMsMax } from './limits.js';

/**
 * Settles with undefined when nobody holds the lock (or this system cannot tell), otherwise with the process that holds it, as the engine
 * noted it in the file.
 */
export async function untilLockFree(statusFile: string): Promise<string | undefined> {
  const startedAt = performance.now();
  while (existsSync(statusFile) && isHeld(statusFile)) {
    if (performance.now() - startedAt > lockMsMax)
      return /^PID: (\d+)$/m.exec(readFileSync(statusFile, 'utf8'))?.[1] ?? '';
    await pause(50);
  }
  return undefined;
}

/** flock(1) ends with 1 if the file is locked. */
function isHeld(file: string): boolean {
  return spawnSync('flock', ['-n', file, 'true'], { stdio: 'ignore' }).status === 1;
}
