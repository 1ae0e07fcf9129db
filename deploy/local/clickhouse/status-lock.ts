// Tells who holds the engine's lock on its data directory, a flock on the file `status`. The engine checks
// it as well, but only says that it failed.

import { readFileSync, statSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { lockDyingMsMax, lockMsMax } from './limits.js';

/**
 * Settles with undefined when nobody holds the lock (or it cannot be told here), or with the process that
 * keeps it. One that was killed may take long to end, when a thread of it waits for the disk: it is waited for.
 */
export async function untilFree(statusFile: string): Promise<number | undefined> {
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

/** True for a process that has ended but for some of its threads, or has a SIGKILL on its way. */
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
