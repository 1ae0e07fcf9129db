// Recognises a process later on: the system reuses process ids, but never with the same start time.

import { readFileSync } from 'node:fs';

export type ProcessIdentity = {
  readonly name: string;
  readonly pid: number;
  /** Clock ticks since the machine started; absent where there is no /proc. */
  readonly startTicks?: string;
};

export function identifyProcess(name: string, pid: number): ProcessIdentity {
  const startTicks = readStat(pid)?.startTicks;
  return startTicks === undefined ? { name, pid } : { name, pid, startTicks };
}

/** Whether exactly that process is still running. A zombie is not: it has ended and holds nothing. */
export function isRunning(identity: ProcessIdentity): boolean {
  if (identity.startTicks !== undefined) {
    const stat = readStat(identity.pid);
    return stat?.startTicks === identity.startTicks && stat.state !== 'Z';
  }
  try {
    process.kill(identity.pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Sends the signal if exactly that process is still running. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): void {
  if (!isRunning(identity)) return;
  try {
    process.kill(identity.pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function readStat(pid: number): { state: string; startTicks: string } | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The program's name is in parentheses and may itself contain spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { state: fields[0] ?? '', startTicks: fields[19] ?? '' };
  } catch (error) {
    // There is no such process, or no /proc. Any other error says nothing about the process.
    if (!['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    return undefined;
  }
}
