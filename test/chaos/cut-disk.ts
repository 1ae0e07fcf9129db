// A disk whose power can be cut: an ext4 file system in a file. As in a real power cut, the kernel drops everything that is not synced,
// both contents and names of files, and replays the journal when the disk is mounted again.

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, rmdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';

export type CutDisk = {
  mountAt(folder: string): void;
  /** Syncs everything, so that a later cut loses nothing of it. */
  sync(): void;
  /**
   * Cuts the power; settles when the disk is mounted again. The process that uses the disk must be paused, so that it answers nothing
   * after the cut; `kill` ends it.
   */
  cut(kill: () => Promise<unknown>): Promise<void>;
  remove(): void;
};

const bytes = 4 * 1024 ** 3;

/** Calls EXT4_IOC_SHUTDOWN without flushing the journal, so that nothing is written any more. */
const source = `
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>

int main(int count, char **arguments) {
  uint32_t without_journal = 2;
  return count != 2 || ioctl(open(arguments[1], O_RDONLY), _IOR('X', 125, uint32_t), &without_journal) != 0;
}
`;

const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };

export function createCutDisk(): CutDisk {
  const dir = tempDir('disk');
  const [image, shutDown] = [join(dir, 'image'), join(dir, 'shut-down')];
  execFileSync('cc', ['-O1', '-o', shutDown, '-x', 'c', '-'], { input: source, stdio: 'pipe' });
  // A sparse file: it takes only the room of what is written to it.
  writeFileSync(image, '');
  truncateSync(image, bytes);
  execFileSync('mkfs.ext4', ['-q', '-F', '-m', '0', image], { env, stdio: 'pipe' });
  let folder: string | undefined;
  const mounted = () => {
    if (folder === undefined) throw new Error('the disk is not mounted');
    return folder;
  };
  const mount = () => execFileSync('mount', ['-o', 'loop', image, mounted()], { env, stdio: 'pipe' });
  // Unmounts the disk before another exit handler removes the folder.
  const unmount = () => void (folder !== undefined && spawnSync('umount', ['--lazy', folder], { env }));
  process.prependOnceListener('exit', unmount);
  return {
    mountAt: (at) => {
      folder = at;
      mkdirSync(at, { recursive: true });
      mount();
      rmdirSync(join(at, 'lost+found'));
    },
    sync: () => void execFileSync('sync', ['-f', mounted()]),
    cut: async (kill) => {
      execFileSync(shutDown, [mounted()], { stdio: 'pipe' });
      await kill();
      await until(() => spawnSync('umount', [mounted()], { env }).status === 0, {
        deadlineMs: 20_000,
        what: 'nobody uses the disk',
      });
      mount();
    },
    remove: () => {
      process.off('exit', unmount);
      unmount();
      removeTempDir(dir);
    },
  };
}

export function canCutDisks(): boolean {
  const dir = tempDir('cut');
  let disk: CutDisk | undefined;
  try {
    disk = createCutDisk();
    disk.mountAt(join(dir, 'mounted'));
    return true;
  } catch {
    return false;
  } finally {
    disk?.remove();
    removeTempDir(dir);
  }
}
