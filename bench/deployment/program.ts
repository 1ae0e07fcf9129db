// A program that sends to the deployment, as a user would start it: how long it takes, and what it costs both sides.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { BenchError } from '../failure.js';
import { cpuBetween, perRecord, sumCpu } from '../throughput/measure.js';
import type { CpuTimes, Deployment } from './deployment.js';
import { cpuMicroseconds, machineMicroseconds, othersShare } from './processes.js';
import { assertStored, countRecords, untilCounted } from './stored.js';

export type ProgramRun = {
  readonly events: number;
  /** Until the program ended, and until everything was stored. */
  readonly acknowledgedSeconds: number;
  readonly storedSeconds: number;
  /** µs of CPU per event of the deployment, and of the program. */
  readonly cpu: CpuTimes;
  readonly programCpu: number;
  readonly othersShare: number;
  readonly output: string;
};

const node = process.execPath;
const lookEveryMs = 20;

/** Rejects unless it ends with code 0 and exactly `events` events of the environment, beside `before`, are stored. */
export async function runProgram(
  deployment: Deployment,
  appId: string,
  args: readonly string[],
  events: number,
  before = 0,
): Promise<ProgramRun> {
  const [machineBefore, cpuBefore] = [machineMicroseconds(), deployment.cpu()];
  const startedAt = performance.now();
  const child = spawn(node, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  // What it has used is known only while it is there.
  let programMicroseconds = 0;
  const timer = setInterval(() => {
    programMicroseconds = Math.max(programMicroseconds, cpuMicroseconds(child.pid ?? 0));
  }, lookEveryMs);
  const [output, errors, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  clearInterval(timer);
  if (code !== 0) throw new BenchError(`the program ended with ${code}: ${errors.slice(-2_000)}`);
  const acknowledgedSeconds = (performance.now() - startedAt) / 1000;
  await untilCounted(() => countRecords(deployment, appId), before + events);
  const storedSeconds = (performance.now() - startedAt) / 1000;
  const used = cpuBetween(cpuBefore, deployment.cpu());
  const others = othersShare(machineBefore, machineMicroseconds(), sumCpu(used) + programMicroseconds);
  await assertStored(deployment, appId, { events: before + events });
  return {
    events,
    acknowledgedSeconds,
    storedSeconds,
    cpu: perRecord(used, events),
    programCpu: programMicroseconds / events,
    othersShare: others,
    output,
  };
}
