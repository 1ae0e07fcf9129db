// Measures how much of the machine's CPU is idle.

import { type CpuInfo, cpus } from 'node:os';

/** Returns a function that returns how many cores were idle on average since its last call. */
export function watchIdleCores(read: () => readonly CpuInfo[] = cpus): () => number {
  let before = sumOf(read());
  return () => {
    const now = sumOf(read());
    const [all, idle] = [now.all - before.all, now.idle - before.idle];
    before = now;
    return all === 0 ? 0 : (now.cores * idle) / all;
  };
}

function sumOf(infos: readonly CpuInfo[]) {
  let [all, idle] = [0, 0];
  for (const { times } of infos) {
    all += times.user + times.nice + times.sys + times.irq + times.idle;
    idle += times.idle;
  }
  return { all, idle, cores: infos.length };
}
