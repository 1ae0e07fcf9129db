// CPU time and memory of processes, from /proc. Figures per event are CPU time: it depends on other load on the machine less
// than events per second do.

import { readdirSync, readFileSync } from 'node:fs';

/** Linux reports CPU time to programs in hundredths of a second, whatever the kernel's tick is. */
const microsecondsPerTick = 10_000;

type Ticks = { readonly user: number; readonly system: number };
type Stat = Ticks & { readonly parent: number };

/**
 * CPU time in µs that a process and its descendants have used so far, user and system. Descendants that ended count with
 * the process that waited for them, so it includes Redis's rewrites of its file.
 */
export function cpuMicroseconds(pid: number): number {
  const { user, system } = ticksOf(pid);
  return (user + system) * microsecondsPerTick;
}

/** The part of it that the kernel used on their behalf. */
export function systemMicroseconds(pid: number): number {
  return ticksOf(pid).system * microsecondsPerTick;
}

function ticksOf(pid: number): Ticks {
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
  let user = 0;
  let system = 0;
  for (const [candidate, stat] of stats) {
    if (!isOurs(candidate)) continue;
    user += stat.user;
    system += stat.system;
  }
  return { user, system };
}

/** Resident memory of a process in bytes, without its descendants; 0 if it has ended. */
export function memoryBytes(pid: number): number {
  try {
    const kib = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return Number(kib ?? 0) * 1024;
  } catch {
    return 0;
  }
}

export type MachineTime = { readonly busy: number; readonly all: number };

/** CPU time in µs of all cores together since the machine started: used by any process, and in total. */
export function machineMicroseconds(): MachineTime {
  const line = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0] ?? '';
  const ticks = line.trim().split(/\s+/).slice(1, 9).map(Number);
  const all = ticks.reduce((sum, value) => sum + value, 0);
  const [idle, waiting] = [ticks[3] ?? 0, ticks[4] ?? 0];
  return { busy: (all - idle - waiting) * microsecondsPerTick, all: all * microsecondsPerTick };
}

/** The share of the machine's CPU time between two readings that others used, besides `own` µs. */
export function othersShare(before: MachineTime, after: MachineTime, own: number): number {
  return Math.max(0, (after.busy - before.busy - own) / (after.all - before.all));
}

function readStat(pid: number): Stat | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The program's name is in parentheses and may itself contain spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [user, system, childrenUser, childrenSystem] = fields.slice(11, 15).map(Number);
    return {
      parent: Number(fields[1]),
      user: (user ?? 0) + (childrenUser ?? 0),
      system: (system ?? 0) + (childrenSystem ?? 0),
    };
  } catch {
    // It ended in between.
    return undefined;
  }
}
