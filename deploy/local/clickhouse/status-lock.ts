// Finds the holder of the engine's lock on its data directory, a flock on the file `status`. The engine checks the
// lock too, but only says that it could not take it.

import { readFileSync, statSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { lockDyingMsMax, lockMsMax } from './limits.js';

/**
 * Settles with undefined when nobody holds the lock (or this system cannot say), else with the process that holds it.
 * Waits for a killed process, which may take long to end while one of its threads waits for the disk.
 */
export async function untilLockFree(statusFile: string): Promise<number | undefined> {
  const startedAt = performance.now();
  for (;;) {
    const holder = holderOf(statusFile);
    if (holder === undefined) return undefined;
    const waitMsMax = isDying(holder) ? lockDyingMsMax : lockMsMax;
    if (performance.now() - startedAt > waitMsMax) return holder;
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

/** Whether a process has ended except for some of its threads, or has a pending SIGKILL. */
function isDying(pid: number): boolean {
  let status: string;
  try {
    status = readFileSync(`/proc/${pid}/status`, 'utf8');
  } catch (error) {
    if (
      (error as NodeJS.ErrnoException).code === 'ENOENT' ||
      (error as NodeJS.ErrnoException).code === 'ESRCH'
    )
      return true;
    throw error;
  }
  const pending = [...status.matchAll(/^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$/gm)];
  const sigkill = 1n << 8n;
  return /^State:\s*[ZX]/m.test(status) || pending.some(([, mask]) => (BigInt(`0x${mask}`) & sigkill) !== 0n);
}
