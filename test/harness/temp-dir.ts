// Temporary folders of a test process, which removes at its end those that are left.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const tempDirs = new Set<string>();
let watching = false;

/** Creates an empty folder. It is removed by `removeTempDir`, or else when the process ends. */
export function tempDir(name: string): string {
  if (!watching) process.once('exit', () => tempDirs.forEach(removeTempDir));
  watching = true;
  const dir = mkdtempSync(join(tmpdir(), `sluice-${name}-`));
  tempDirs.add(dir);
  return dir;
}

export function removeTempDir(dir: string): void {
  tempDirs.delete(dir);
  rmSync(dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 });
}
