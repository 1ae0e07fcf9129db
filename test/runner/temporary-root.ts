// Chooses where the temporary folders of tests are. On a file system in memory, the small inserts and fsyncs of the many engines in tests
// cost half of the CPU that they cost on a disk, so that is used where it has room.

import { accessSync, constants, readFileSync, statfsSync } from 'node:fs';
import { freemem, tmpdir } from 'node:os';

const memory = '/dev/shm';
const tmpfsType = 0x01021994;
/** Several times the most that a run writes there, since the processes of the tests need memory too. */
const freeBytesMin = 8 * 1024 ** 3;

/** The folder for temporary folders: TMPDIR if that is set. */
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

/** Whether programs may be started from there, as tests do; containers often forbid it. */
function runsPrograms(): boolean {
  const mount = readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' '))
    .findLast(([, path]) => path === memory);
  return mount !== undefined && !mount[3]?.split(',').includes('noexec');
}
