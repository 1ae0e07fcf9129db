// Where the temporary folders of tests are made. Small inserts and fsyncs of the many engines that tests start cost half of
// the CPU in memory that they cost on a disk, so a file system in memory is taken where one has room.

import { accessSync, constants, readFileSync, statfsSync } from 'node:fs';
import { freemem, tmpdir } from 'node:os';

const memory = '/dev/shm';
const tmpfsType = 0x01021994;
/** Several times what a run has there at most, for which the processes of tests need memory too. */
const freeBytesMin = 8 * 1024 ** 3;

/** TMPDIR if it is set. */
export function temporaryRoot(): string {
  return process.env.TMPDIR === undefined && memoryHasRoom() ? memory : tmpdir();
}

function memoryHasRoom(): boolean {
  try {
    accessSync(memory, constants.W_OK | constants.X_OK);
    const { type, bavail, bsize } = statfsSync(memory);
    return type === tmpfsType && Math.min(bavail * bsize, freemem()) >= freeBytesMin && runsPrograms();
  } catch {
    return false;
  }
}

/** Tests start programs from their folders, which containers often forbid there. */
function runsPrograms(): boolean {
  const mount = readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' '))
    .findLast(([, path]) => path === memory);
  return mount !== undefined && !mount[3]?.split(',').includes('noexec');
}
