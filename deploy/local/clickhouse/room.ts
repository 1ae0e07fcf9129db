// The room on the disk of the embedded ClickHouse: what it leaves free, and what it needs before it starts.

import { statfsSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { keptFreeBytesMax, keptFreeShare, startBytesMin } from './limits.js';

/**
 * What merges and mutations leave free, in bytes, and what inserts leave free besides. The engine reserves what it is going to
 * write, so what is left is for others: the definitions of tables, and a Redis on the same disk, which goes on accepting records.
 */
export function keptFree(folder: string): { readonly bytes: number; readonly byInsertsBytes: number } {
  const { blocks, bsize } = statfsSync(folder);
  const bytes = Math.min(keptFreeBytesMax, Math.floor(blocks * bsize * keptFreeShare));
  return { bytes, byInsertsBytes: bytes };
}

const everyMs = 250;

/**
 * Settles when the disk has room for a start: the engine ends at the first write that fails, and would be started over and over. `onWait`
 * is called once if there is none yet.
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
