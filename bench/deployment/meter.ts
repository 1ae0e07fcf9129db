// Measures the CPU time of the deployment's processes, of the bench and of other programs between two moments.

import { type CpuTimes, type ProcessName, processNames } from './deployment.js';
import { machineMicroseconds } from './processes.js';

/** Starts measuring. Each call of the returned function reads what was used since the start. */
export function startMeter(cpu: () => CpuTimes) {
  const startedAt = performance.now();
  const [before, machineBefore, ownBefore] = [cpu(), machineMicroseconds(), process.cpuUsage()];
  return () => {
    const machine = machineMicroseconds();
    const { user, system } = process.cpuUsage(ownBefore);
    const used = cpuBetween(before, cpu());
    const [busy, all] = [machine.busy - machineBefore.busy, machine.all - machineBefore.all];
    const ours = sumCpu(used) + user + system;
    return {
      seconds: (performance.now() - startedAt) / 1_000,
      /** µs per kind of process, and µs of the bench itself. */
      used,
      own: user + system,
      /** The share of the machine's CPU time that any process used. */
      machineShare: busy / all,
      /** The share that other programs used: all except these processes, the bench, and `more` µs of another process of ours. */
      othersShare: (more = 0) => Math.max(0, (busy - ours - more) / all),
    };
  };
}

/** CPU time in µs that each kind of process used between two readings. */
export function cpuBetween(before: CpuTimes, after: CpuTimes): CpuTimes {
  const used: Partial<Record<ProcessName, number>> = {};
  for (const name of processNames) {
    const now = after[name];
    if (now !== undefined) used[name] = now - (before[name] ?? 0);
  }
  return used;
}

export function sumCpu(times: CpuTimes): number {
  return processNames.reduce((sum, name) => sum + (times[name] ?? 0), 0);
}

export function perRecord(times: CpuTimes, records: number): CpuTimes {
  return Object.fromEntries(Object.entries(times).map(([name, used]) => [name, used / records]));
}

/** Runs `work`, a load that this process sends; settles with its result, seconds and CPU. */
export async function generating<Result>(work: () => Promise<Result>) {
  const [startedAt, before] = [performance.now(), process.cpuUsage()];
  const result = await work();
  const seconds = (performance.now() - startedAt) / 1_000;
  const { user, system } = process.cpuUsage(before);
  return { result, seconds, generatorCpu: user + system, generatorShare: (user + system) / 1e6 / seconds };
}
