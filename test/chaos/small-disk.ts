// A small disk that can be filled and freed: a tmpfs, or an ext4 in a file. Where mounting is not permitted, it is an ordinary folder, and
// faults of full disks are left out.

import { spawnSync } from 'node:child_process';
import { rmdirSync, rmSync, statfsSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';

export type SmallDisk = {
  readonly dir: string;
  /** Whether it is a disk of its own, which can be filled. */
  readonly mounted: boolean;
  freeBytes(): number;
  /** Fills the disk to the last byte, or until this many are left. */
  fill(leftBytes?: number): void;
  free(): void;
  remove(): void;
};

export type FileSystem = 'tmpfs' | 'ext4';

const bytes = 192 * 1024 * 1024;
/** At most this much is written, to fill the disk to the last byte; the rest is only allocated. */
const writtenBytesMax = 1024 * 1024;

export function canMount(fileSystem: FileSystem = 'tmpfs'): boolean {
  const disk = createSmallDisk(fileSystem);
  disk.remove();
  return disk.mounted;
}

export function createSmallDisk(fileSystem: FileSystem = 'tmpfs'): SmallDisk {
  const dir = tempDir('disk');
  const folder = tempDir('image');
  const mounted = fileSystem === 'tmpfs' ? mountTmpfs(dir) : mountExt4(dir, join(folder, 'image'));
  const ballast = join(dir, 'ballast');
  // Unmounts the disk before another exit handler removes the folder.
  const unmount = () => void (mounted && spawnSync('umount', ['--lazy', dir]));
  process.prependOnceListener('exit', unmount);
  const freeBytes = () => {
    const { bavail, bsize } = statfsSync(dir);
    return bavail * bsize;
  };
  return {
    dir,
    mounted,
    freeBytes,
    fill: (leftBytes = 0) => {
      // Allocates most: writing it all would block this process, for 4 to 9 s on a busy machine.
      const bytes = freeBytes() - leftBytes - writtenBytesMax;
      if (bytes > 0) {
        const offset = statSync(ballast, { throwIfNoEntry: false })?.size ?? 0;
        spawnSync('fallocate', ['--offset', String(offset), '--length', String(bytes), ballast]);
      }
      try {
        writeFileSync(ballast, Buffer.alloc(Math.max(0, freeBytes() - leftBytes)), { flag: 'a' });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    },
    free: () => rmSync(ballast, { force: true }),
    remove: () => {
      process.off('exit', unmount);
      unmount();
      removeTempDir(dir);
      removeTempDir(folder);
    },
  };
}

function mountTmpfs(dir: string): boolean {
  return spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'sluice-chaos', dir]).status === 0;
}

function mountExt4(dir: string, image: string): boolean {
  const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
  // A sparse file: it takes only the room of what is written to it.
  writeFileSync(image, '');
  truncateSync(image, bytes);
  const made = spawnSync('mkfs.ext4', ['-q', '-F', '-m', '0', image], { env }).status === 0;
  if (!made || spawnSync('mount', ['-o', 'loop', image, dir], { env }).status !== 0) return false;
  rmdirSync(join(dir, 'lost+found'));
  return true;
}
