// Runs a program that sends to the deployment, as a user would start it, and measures its time and the CPU of both sides.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { BenchError } from '../failure.js';
import type { Deployment } from './deployment.js';
import { perRecord, startMeter } from './meter.js';
import { cpuMicroseconds } from './processes.js';
import { assertStored, untilCounted } from './stored.js';

const lookEveryMs = 20;

/** Rejects unless the program exits with 0 and exactly `events` more events are stored than `before`. */
export async function runProgram(
  deployment: Deployment,
  appId: string,
  args: readonly string[],
  events: number,
  before = 0,
) {
  const read = startMeter(deployment.cpu);
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  // Sampled, since /proc has the program's CPU time only while it runs.
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
  const { seconds: acknowledgedSeconds } = read();
  await untilCounted(() => deployment.count(appId), before + events);
  const { seconds: storedSeconds, used, othersShare } = read();
  await assertStored(deployment, appId, { events: before + events });
  return {
    events,
    /** Until the program ended, and until everything was stored. */
    acknowledgedSeconds,
    storedSeconds,
    /** µs of CPU per event, of the deployment and of the program. */
    cpu: perRecord(used, events),
    programCpu: programMicroseconds / events,
    othersShare: othersShare(programMicroseconds),
    output,
  };
}
