// Free space on the disk of the embedded ClickHouse: how much it leaves, and how much it needs to start.

import { statfsSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { keptFreeBytesMax, keptFreeShare, startBytesMin } from './limits.js';

/**
 * How many bytes merges and mutations leave free; inserts leave as many free in addition. The engine reserves what it is going to
 * write, so the rest is for others: the definitions of tables, and a Redis on the same disk, which continues to accept records.
 */
export function keptFree(folder: string): number {
  const { blocks, bsize } = statfsSync(folder);
  return Math.min(keptFreeBytesMax, Math.floor(blocks * bsize * keptFreeShare));
}

const everyMs = 250;

/**
 * Settles when the disk has enough space for a start: the engine ends at the first write that fails, and would be restarted over and over.
 * Calls `onWait` once if there is not enough space yet.
 */
export async function untilRoom(
  folder: string,
  onWait: (room: { readonly freeBytes: number; readonly neededBytes: number }) => void,
): Promise<void> {
  for (let isFirst = true; ; isFirst = false) {
    const { bavail, bsize } = statfsSync(folder);
    const freeBytes = bavail * bsize;
    if (freeBytes >= startBytesMin) return;
    if (isFirst) onWait({ freeBytes, neededBytes: startBytesMin });
    await pause(everyMs);
  }
}
