// A small disk that can be filled and freed: a tmpfs, or an ext4 in a file. Where mounting is not permitted, a process gets an
// ordinary folder, and there is no full disk.

import { spawnSync } from 'node:child_process';
import { rmdirSync, rmSync, statfsSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';

export type SmallDisk = {
  readonly dir: string;
  /** Whether it can be filled. */
  readonly mounted: boolean;
  freeBytes(): number;
  /** Fills the disk completely, or but for some bytes. */
  fill(leftBytes?: number): void;
  free(): void;
  remove(): void;
};

export type FileSystem = 'tmpfs' | 'ext4';

const bytes = 192 * 1024 * 1024;
/** What is left to the last byte is written; the rest is only taken. */
const writtenBytesMax = 1024 * 1024;

/** Whether this machine can mount such a disk. */
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
  // Unmounts before the folder is removed; the end of the process removes it too.
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
      // Writing all of it took 4 to 9 s on a busy machine, in which this process answered nobody.
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
  // It takes no more room than what is written to it.
  writeFileSync(image, '');
  truncateSync(image, bytes);
  const made = spawnSync('mkfs.ext4', ['-q', '-F', '-m', '0', image], { env }).status === 0;
  if (!made || spawnSync('mount', ['-o', 'loop', image, dir], { env }).status !== 0) return false;
  rmdirSync(join(dir, 'lost+found'));
  return true;
}
