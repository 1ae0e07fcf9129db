// A small disk for Redis that can be filled and freed: a tmpfs. Mounting needs the rights to do so; without
// them Redis gets an ordinary folder, and there is no full disk.

import { spawnSync } from 'node:child_process';
import { rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { removeTempDir, tempDir } from '../support/temp-dir.js';

export type SmallDisk = {
  readonly dir: string;
  /** Whether it can be filled. */
  readonly mounted: boolean;
  /** Leaves no room on it. */
  fill(): void;
  free(): void;
  remove(): void;
};

const bytes = 192 * 1024 * 1024;

/** Whether a tmpfs can be mounted here. */
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
  // Before the folder is removed, which the process's end does too.
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
