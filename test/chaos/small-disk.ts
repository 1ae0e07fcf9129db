// A small disk for Redis that can be filled and freed: a tmpfs. Where mounting is not permitted, Redis gets an ordinary
// folder, and there is no full disk.

import { spawnSync } from 'node:child_process';
import { rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { removeTempDir, tempDir } from '../../harness/temp-dir.js';

export type SmallDisk = {
  readonly dir: string;
  /** Whether it can be filled. */
  readonly mounted: boolean;
  /** Fills the disk completely. */
  fill(): void;
  free(): void;
  remove(): void;
};

const bytes = 192 * 1024 * 1024;

/** Whether a tmpfs can be mounted on this machine. */
export function canMount(): boolean {
  const dir = tempDir('mount');
  const mounted = mount(dir);
  if (mounted) spawnSync('umount', [dir]);
  removeTempDir(dir);
  return mounted;
}

export function createSmallDisk(): SmallDisk {
  const dir = tempDir('redis');
  const mounted = mount(dir);
  const ballast = join(dir, 'ballast');
  // Unmounts before the folder is removed; the end of the process removes it too.
  const unmount = () => void (mounted && spawnSync('umount', ['--lazy', dir]));
  process.prependOnceListener('exit', unmount);
  return {
    dir,
    mounted,
    fill: () => {
      const { bavail, bsize } = statfsSync(dir);
      try {
        writeFileSync(ballast, Buffer.alloc(Number(bavail) * Number(bsize)));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    },
    free: () => rmSync(ballast, { force: true }),
    remove: () => {
      process.off('exit', unmount);
      unmount();
      removeTempDir(dir);
    },
  };
}

function mount(dir: string): boolean {
  return spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'sluice-chaos', dir]).status === 0;
}
