// A disk whose power can be cut: an ext4 file system in a file. Its kernel drops what it was told and has not synced, contents and
// names of files alike, and reads its journal when it is mounted again, as after a real cut.

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, rmdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';

export type CutDisk = {
  mountAt(folder: string): void;
  /** Syncs everything, so that a cut takes nothing of before. */
  sync(): void;
  /**
   * Cuts the power. The process that uses the disk must be stopped, so that it answers nothing any more; `kill` ends it. Settles
   * when the disk is mounted again.
   */
  cut(kill: () => Promise<unknown>): Promise<void>;
  remove(): void;
};

const bytes = 4 * 1024 ** 3;

/** Without the journal: nothing that waits is written. It is the same call for all file systems that have it. */
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
  // It takes no more room than what is written to it.
  writeFileSync(image, '');
  truncateSync(image, bytes);
  execFileSync('mkfs.ext4', ['-q', '-F', '-m', '0', image], { env, stdio: 'pipe' });
  let folder: string | undefined;
  const mounted = () => {
    if (folder === undefined) throw new Error('the disk is not mounted');
    return folder;
  };
  const mount = () => execFileSync('mount', ['-o', 'loop', image, mounted()], { env, stdio: 'pipe' });
  // Unmounts before the folder is removed; the end of the process removes it too.
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

/** Whether this machine can do all that. */
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
