// Keeps one child process running: starts it, waits until it is healthy, restarts it when it ends, and stops it
// on request.

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { isAlive, killGroup, launch, type Program } from './launch.js';
import type { DataDirLock } from './lock.js';
import { openLogFile } from './log-file.js';
import { logLineText } from './log-line.js';
import { StartError } from './start-error.js';

const backoffMsMin = 100;
const backoffMsMax = 5_000;
/** A child that was healthy for this long has recovered: after its next end the pauses start again from the shortest. */
const recoveredAfterMs = 30_000;
const healthPollMs = 50;
const waitingLineEveryMs = 10_000;
const hurriedStopMs = 1_000;

export type ChildSpec = {
  readonly name: string;
  readonly program: Program;
  /** Whether the program has an IPC channel, as ours do: when it closes, they know that their parent is gone. */
  readonly ipc: boolean;
  /** Work to be done before each start of the program. */
  readonly prepare?: (stopping: AbortSignal) => Promise<void>;
  /** Settles with whether the process is serving; a rejection means that it is not serving yet. */
  readonly healthy: (pid: number) => Promise<boolean>;
  /** The deadline of the first start. Later starts have none. */
  readonly healthyMsMax: number;
  /** Time between SIGTERM and SIGKILL. */
  readonly stopMsMax: number;
};

export type Child = ReturnType<typeof createChild>;

type ChildSurroundings = {
  readonly logDir: string;
  readonly lock: DataDirLock;
  readonly say: (line: string) => void;
};

export function createChild(spec: ChildSpec, { logDir, lock, say }: ChildSurroundings) {
  const log = openLogFile(
    `${logDir}/${spec.name}.log`,
    (line) => spec.ipc && logLineText(line) !== undefined,
    (line) => say(`${spec.name}: ${logLineText(line) ?? line}`),
  );
  const stopping = new AbortController();
  let current: ChildProcess | undefined;
  let everHealthy = false;
  let run: Promise<void> | undefined;

  /** Settles when the child is healthy for the first time, or was stopped before that; rejects with StartError. */
  function start(): Promise<void> {
    return new Promise((settle, reject) => {
      run = keepRunning(settle, reject).catch(reject);
    });
  }

  async function keepRunning(onHealthy: () => void, onFailure: (error: StartError) => void): Promise<void> {
    let backoffMs = backoffMsMin;
    const pauseAfter = async (what: string) => {
      say(`${spec.name} ${what}, starting it again in ${backoffMs} ms`);
      await pauseUntil(backoffMs, stopping.signal);
      backoffMs = Math.min(backoffMs * 2, backoffMsMax);
    };
    for (;;) {
      let child: ChildProcess;
      try {
        await spec.prepare?.(stopping.signal);
        if (stopping.signal.aborted) return onHealthy();
        child = begin();
      } catch (error) {
        // For example because of a full disk, or for lack of memory: both may pass.
        if (!everHealthy) throw error;
        await pauseAfter(`cannot be started (${(error as Error).message})`);
        if (stopping.signal.aborted) return onHealthy();
        continue;
      }
      const healthy = await untilHealthy(child, everHealthy ? Number.POSITIVE_INFINITY : spec.healthyMsMax);
      const healthySince = performance.now();
      if (stopping.signal.aborted) return onHealthy();
      if (healthy) {
        if (everHealthy) say(`${spec.name} runs again (pid ${child.pid})`);
        everHealthy = true;
        onHealthy();
      } else if (!everHealthy && child.signalCode === null) {
        // The child ended by itself, or never became healthy: another attempt would end in the same way.
        return onFailure(
          new StartError(`${spec.name} ${whatHappened(child)}${lastWords()} (its log: ${log.path})`),
        );
      }

      await ended(child);
      if (child.pid !== undefined) killGroup(child.pid);
      log.flush();
      if (stopping.signal.aborted) return onHealthy();
      if (healthy && performance.now() - healthySince > recoveredAfterMs) backoffMs = backoffMsMin;
      await pauseAfter(whatHappened(child));
      if (stopping.signal.aborted) return onHealthy();
    }
  }

  function begin(): ChildProcess {
    const channel = spec.ipc ? (['ipc'] as const) : [];
    const child = launch(spec.program, ['ignore', log.fd, log.fd, lock.fd, ...channel], 'TERM');
    current = child;
    // Without an error listener a missing program would end the supervisor. `ended` treats it like an end.
    child.on('error', () => undefined);
    if (child.pid !== undefined) lock.note(spec.name, child.pid);
    return child;
  }

  /** Settles when the child is healthy, has ended or is being stopped, or after `msMax`; with whether it is healthy. */
  async function untilHealthy(child: ChildProcess, msMax: number): Promise<boolean> {
    const startedAt = performance.now();
    let saidAt = startedAt;
    while (isAlive(child) && !stopping.signal.aborted) {
      if (await spec.healthy(child.pid as number).catch(() => false)) return isAlive(child);
      const now = performance.now();
      if (now - startedAt > msMax) return false;
      if (now - saidAt > waitingLineEveryMs) {
        say(`still waiting for ${spec.name}`);
        saidAt = now;
      }
      await pause(healthPollMs);
    }
    return false;
  }

  /** The last lines of the log. Needed for Redis, whose log the console does not follow. */
  function lastWords(): string {
    log.flush();
    if (spec.ipc) return '';
    const line = log.lastLine();
    return line === undefined ? '' : `: ${logLineText(line) ?? line}`;
  }

  /** Ends the child and its restarts, and settles when it is gone. `hurry` shortens the wait before SIGKILL. */
  async function stop(hurry: AbortSignal): Promise<void> {
    stopping.abort();
    const child = current;
    if (child !== undefined && isAlive(child)) {
      child.kill('SIGTERM');
      const gone = new AbortController();
      void ended(child).then(() => gone.abort());
      await pauseUntil(spec.stopMsMax - hurriedStopMs, gone.signal, hurry);
      await pauseUntil(hurriedStopMs, gone.signal);
      if (!gone.signal.aborted) {
        say(`${spec.name} did not stop in time, killing it`);
        child.kill('SIGKILL');
        await ended(child);
      }
      if (child.pid !== undefined) killGroup(child.pid);
    }
    await run;
    log.close();
  }

  return {
    name: spec.name,
    get pid(): number | undefined {
      return current?.pid;
    },
    start,
    stop,
  };
}

async function ended(child: ChildProcess): Promise<void> {
  if (isAlive(child)) await once(child, 'exit');
}

function whatHappened(child: ChildProcess): string {
  if (child.pid === undefined) return 'could not be started';
  if (child.signalCode !== null) return `was ended by ${child.signalCode}`;
  return child.exitCode === null ? 'did not become healthy' : `ended with code ${child.exitCode}`;
}

/** Settles after `ms`, or with the first of the signals. */
async function pauseUntil(ms: number, ...signals: readonly AbortSignal[]): Promise<void> {
  await pause(ms, undefined, { signal: AbortSignal.any([...signals]) }).catch(() => undefined);
}
