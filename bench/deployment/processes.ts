// Reads CPU time and memory of processes from /proc. Other load on the machine changes CPU time per event less than events per second.

import { readdirSync, readFileSync } from 'node:fs';

/** /proc reports CPU time in hundredths of a second, regardless of the kernel's tick. */
const microsecondsPerTick = 10_000;

/**
 * CPU time in µs, user and system, that a process and its descendants have used so far. Descendants that have ended count too, with the
 * process that waited for them; so this includes Redis's rewrites of its file.
 */
export function cpuMicroseconds(pid: number): number {
  return sumOver(pid, ({ user, system }) => user + system);
}

/** The part of this CPU time that was spent in the kernel. */
export function systemMicroseconds(pid: number): number {
  return sumOver(pid, ({ system }) => system);
}

type Stat = NonNullable<ReturnType<typeof readStat>>;

function sumOver(pid: number, ticks: (stat: Stat) => number): number {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  const stats = new Map(pids.map((name) => [Number(name), readStat(name)]));
  const isOurs = (candidate: number): boolean => {
    for (let at = candidate; at > 1; at = stats.get(at)?.parent ?? 0) if (at === pid) return true;
    return false;
  };
  let sum = 0;
  for (const [candidate, stat] of stats) if (stat && isOurs(candidate)) sum += ticks(stat);
  return sum * microsecondsPerTick;
}

/** Resident bytes of a process without its descendants; 0 if it has ended. */
export function memoryBytes(pid: number): number {
  try {
    const kib = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return Number(kib ?? 0) * 1024;
  } catch {
    return 0;
  }
}

/** CPU time in µs of all cores since the machine started: `busy` is used by any process, `all` includes idle time. */
export function machineMicroseconds(): { readonly busy: number; readonly all: number } {
  const line = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0] ?? '';
  const ticks = line.trim().split(/\s+/).slice(1, 9).map(Number);
  const all = ticks.reduce((sum, value) => sum + value, 0);
  const [idle, waiting] = [ticks[3] ?? 0, ticks[4] ?? 0];
  return { busy: (all - idle - waiting) * microsecondsPerTick, all: all * microsecondsPerTick };
}

/** CPU time in ticks, including that of ended children. Undefined if the process has ended. */
function readStat(pid: string) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The program's name stands in parentheses and may itself contain spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [user = 0, system = 0, childrenUser = 0, childrenSystem = 0] = fields.slice(11, 15).map(Number);
    return { parent: Number(fields[1]), user: user + childrenUser, system: system + childrenSystem };
  } catch {
    return undefined;
  }
}
