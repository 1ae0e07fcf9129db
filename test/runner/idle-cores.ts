// How much of the machine nobody uses.

import { type CpuInfo, cpus } from 'node:os';

/** Returns a function that tells how many cores were idle since its last call, on average. */
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
