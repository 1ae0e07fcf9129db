// The tools that some faults need, and whether this machine has them.

import { existsSync } from 'node:fs';
import { canCutDisks } from './cut-disk.js';
import { canTrace } from './power-cut.js';
import { canSetRedisClock } from './redis-clock.js';
import { canMount } from './small-disk.js';

/**
 * `strace` for power cuts of Redis, `loop` for power cuts of ClickHouse, `faketime` for our clocks, `cc` for Redis's clock, `mount`
 * for full disks.
 */
export type Tool = 'strace' | 'loop' | 'faketime' | 'cc' | 'mount';

const faketimeLibraries = ['x86_64-linux-gnu', 'aarch64-linux-gnu'].map(
  (folder) => `/usr/lib/${folder}/faketime/libfaketime.so.1`,
);

/** The library that changes a process's clock; undefined where it is not installed. */
export function faketimeLibrary(): string | undefined {
  return faketimeLibraries.find(existsSync);
}

export async function findTools(): Promise<ReadonlySet<Tool>> {
  const tools = new Set<Tool>();
  if (await canTrace()) tools.add('strace');
  if (canCutDisks()) tools.add('loop');
  if (faketimeLibrary() !== undefined) tools.add('faketime');
  if (canSetRedisClock()) tools.add('cc');
  if (canMount()) tools.add('mount');
  return tools;
}

/** How to get each missing tool, in one line. */
export const remedies: Readonly<Record<Tool, string>> = {
  strace: 'apt-get install strace, and the right to trace processes',
  loop: 'apt-get install gcc libc6-dev e2fsprogs, and the right to mount a file as a disk (root, and loop devices)',
  faketime: 'apt-get install faketime',
  cc: 'apt-get install gcc libc6-dev',
  mount: 'the right to mount a tmpfs (root, or CAP_SYS_ADMIN)',
};
