// Temporary folders of a test process; what is left of them goes when the process ends.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const made = new Set<string>();
let watching = false;

/** Makes an empty folder. It is removed when the process ends, or earlier by `removeTempDir`. */
export function tempDir(name: string): string {
  if (!watching) process.once('exit', () => made.forEach(removeTempDir));
  watching = true;
  const dir = mkdtempSync(join(tmpdir(), `sluice-${name}-`));
  made.add(dir);
  return dir;
}

export function removeTempDir(dir: string): void {
  made.delete(dir);
  rmSync(dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 });
}
