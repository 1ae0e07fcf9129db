// Finds the process that holds the engine's lock on its data directory, a flock on the file `status`. The engine also checks the lock, but
// only reports that it could not take it.

import { readdirSync, readFileSync, type Stats, statSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { lockDyingMsMax, lockMsMax } from './limits.js';

/**
 * Settles with undefined when nobody holds the lock (or this system cannot tell), otherwise with the process that holds it. Waits for a
 * killed process, which may take long to end while one of its threads waits for the disk.
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
  const status = statSync(file, { throwIfNoEntry: false });
  if (status === undefined || process.platform !== 'linux') return undefined;
  // 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131074 0 EOF
  const pattern = new RegExp(`^\\d+: FLOCK +\\S+ +WRITE (\\d+) ([0-9a-f]+:[0-9a-f]+):${status.ino} `, 'gm');
  for (const [, pid = '', device = ''] of readFileSync('/proc/locks', 'utf8').matchAll(pattern)) {
    if (hasOpen(pid, status) ?? device === deviceOf(status)) return Number(pid);
  }
  return undefined;
}

/**
 * Whether a process has this file open; undefined if that cannot be seen, because the process is another user's, or has ended except for
 * some of its threads. Files of two file systems may have the same inode number, and some file systems appear under another device in the
 * list of locks.
 */
function hasOpen(pid: string, { dev, ino }: Stats): boolean | undefined {
  try {
    const open = readdirSync(`/proc/${pid}/fd`);
    if (open.length === 0) return undefined;
    return open.some((fd) => {
      const other = statSync(`/proc/${pid}/fd/${fd}`, { throwIfNoEntry: false });
      return other?.ino === ino && other.dev === dev;
    });
  } catch {
    return undefined;
  }
}

/** The device as it appears in the list of locks: major and minor number in hexadecimal digits. */
function deviceOf({ dev }: Stats): string {
  const bits = BigInt(dev);
  const major = ((bits >> 8n) & 0xfffn) | ((bits >> 32n) & ~0xfffn);
  const minor = (bits & 0xffn) | ((bits >> 12n) & 0xffffff00n);
  return [major, minor].map((number) => number.toString(16).padStart(2, '0')).join(':');
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
