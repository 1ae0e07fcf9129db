// CPU time and memory of processes, from /proc. CPU time is what a figure per event is made of: it hardly
// depends on who else uses the machine, unlike events a second.

import { readdirSync, readFileSync } from 'node:fs';

/** Linux reports CPU time to programs in hundredths of a second, whatever the kernel ticks at. */
const microsecondsPerTick = 10_000;

type Stat = { readonly parent: number; readonly ticks: number };

/**
 * CPU time in µs that a process and its descendants have used until now, user and system. Descendants that
 * ended count with the one that waited for them, so Redis's rewrites of its file are in it.
 */
export function cpuMicroseconds(pid: number): number {
  const stats = new Map<number, Stat>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const stat = readStat(Number(name));
    if (stat !== undefined) stats.set(Number(name), stat);
  }
  const isOurs = (candidate: number): boolean => {
    for (let at = candidate; at > 1; at = stats.get(at)?.parent ?? 0) if (at === pid) return true;
    return false;
  };
  let ticks = 0;
  for (const [candidate, stat] of stats) if (isOurs(candidate)) ticks += stat.ticks;
  return ticks * microsecondsPerTick;
}

/** Resident memory of a process in bytes, without its descendants; 0 when it has ended. */
export function memoryBytes(pid: number): number {
  try {
    const kib = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return Number(kib ?? 0) * 1024;
  } catch {
    return 0;
  }
}

export type MachineTime = { readonly busy: number; readonly all: number };

/** CPU time in µs of all cores together since the machine started: what any process used, and all there was. */
export function machineMicroseconds(): MachineTime {
  const line = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0] ?? '';
  const ticks = line.trim().split(/\s+/).slice(1, 9).map(Number);
  const all = ticks.reduce((sum, value) => sum + value, 0);
  const [idle, waiting] = [ticks[3] ?? 0, ticks[4] ?? 0];
  return { busy: (all - idle - waiting) * microsecondsPerTick, all: all * microsecondsPerTick };
}

/** Part of the machine's CPU time between two looks that was used by others than those who used `own` µs. */
export function othersShare(before: MachineTime, after: MachineTime, own: number): number {
  return Math.max(0, (after.busy - before.busy - own) / (after.all - before.all));
}

function readStat(pid: number): Stat | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The program's name stands in parentheses and may itself hold spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [user, system, childrenUser, childrenSystem] = fields.slice(11, 15).map(Number);
    return {
      parent: Number(fields[1]),
      ticks: (user ?? 0) + (system ?? 0) + (childrenUser ?? 0) + (childrenSystem ?? 0),
    };
  } catch {
    // It ended between the two looks.
    return undefined;
  }
}
