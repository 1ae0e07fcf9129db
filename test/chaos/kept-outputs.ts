// Keeps the output of the processes of a broken round, for the reader of its report.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AnyDeployment } from './deployment.js';
import { runFolder } from './run-file.js';

/** Writes a file for each process; returns their folder. */
export function keepOutputs({ processes }: AnyDeployment, seed: number): string {
  const folder = join(runFolder, `broken-${seed}-${Date.now()}`);
  mkdirSync(folder, { recursive: true });
  for (const [part, child] of processes) writeFileSync(join(folder, `${part}.log`), child.output());
  return folder;
}
