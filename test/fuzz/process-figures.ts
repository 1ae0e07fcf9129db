// Reads a process's memory, CPU time and open file descriptors from the kernel.

import { readdirSync, readFileSync } from 'node:fs';

const MiB = 1024 * 1024;

/** Resident memory in MiB; 0 when the process is gone. */
export function residentMib(pid: number): number {
  return mibOf(pid, /^VmRSS:\s+(\d+) kB/m);
}

/** Peak resident memory in MiB since the start or the last reset of the peak; 0 when the process is gone. */
export function peakMib(pid: number): number {
  return mibOf(pid, /^VmHWM:\s+(\d+) kB/m);
}

function mibOf(pid: number, line: RegExp): number {
  try {
    return (Number(line.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024) / MiB;
  } catch {
    return 0;
  }
}

/** CPU time of the main thread in ms; 0 when the process is gone. */
export function mainThreadMs(pid: number): number {
  try {
    const [runNs = '0'] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ');
    return Number(runNs) / 1e6;
  } catch {
    return 0;
  }
}

/** Open file descriptors; 0 when the process is gone. */
export function openDescriptors(pid: number): number {
  try {
    return readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return 0;
  }
}

/** The value below which this share of the values lies; 0 when there are none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}
