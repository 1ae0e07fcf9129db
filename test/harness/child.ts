// A child process of a test that can be killed, paused and restarted. No child outlives the test's process: the kernel
// kills it with its parent, and so does the exit hook here. Nor does a child keep the test's process alive, so a test
// that fails before it stops its services still ends.

import type { ChildProcess } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { isAlive, killGroup, launch, type Program } from '../../deploy/local/launch.js';
import { until, within } from './wait.js';

const outputCharsMax = 1_000_000;
const lastOutputMsMax = 200;

export type Exit = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

export type Child = {
  readonly name: string;
  /** The id of the current process; `restart` changes it. */
  readonly pid: number;
  readonly running: boolean;
  readonly ended: Exit | undefined;
  /** How those processes of this handle ended that were not asked to by `kill9`, `sigterm` or `stop`. */
  readonly endedByThemselves: readonly Exit[];
  /** Settles when the current process ends. */
  readonly exited: Promise<Exit>;
  /** What all processes of this handle wrote to stdout and stderr: the last million characters. */
  output(): string;
  /** These three end the process and settle when it is gone. They may be called when it is already gone. */
  kill9(): Promise<Exit>;
  sigterm(deadlineMs?: number): Promise<Exit>;
  /** SIGTERM, and SIGKILL if that does not end it within 20 s. */
  stop(): Promise<Exit>;
  sigstop(): void;
  sigcont(): void;
  /**
   * Starts the same program again, after ending it if it runs; settles when it is healthy. `moreEnv` applies only to that
   * process, not to later ones.
   */
  restart(moreEnv?: NodeJS.ProcessEnv): Promise<void>;
};

export type ChildOptions = {
  readonly name: string;
  readonly program: Program;
  /** Gives a Node child an IPC channel, by whose end the child notices that its parent is gone. */
  readonly ipc?: boolean;
  /** Called repeatedly until it returns true. */
  readonly healthy: (child: { readonly pid: number; output(): string }) => boolean | Promise<boolean>;
  readonly healthyDeadlineMs: number;
  /** A file that gets a copy of the output, for tests in other processes. */
  readonly outputFile?: string | undefined;
};

const runningPids = new Set<number>();
process.once('exit', () => {
  for (const pid of runningPids) killGroup(pid);
});

/** Starts a process; settles when it is healthy, rejects with its output when it ends or stays unhealthy. */
export async function startChild(options: ChildOptions): Promise<Child> {
  let output = '';
  let lastExit: Exit | undefined;
  const endedByThemselves: Exit[] = [];
  let isAskedToEnd = false;
  let current = begin({});

  function begin(moreEnv: NodeJS.ProcessEnv) {
    lastExit = undefined;
    isAskedToEnd = false;
    const spawned = launch(
      { ...options.program, env: { ...options.program.env, ...moreEnv } },
      ['ignore', 'pipe', 'pipe', ...(options.ipc ? (['ipc'] as const) : [])],
      'KILL',
    );
    const exited = new Promise<Exit>((settle) => {
      spawned.once('exit', (code, signal) => {
        lastExit = { code, signal };
        if (!isAskedToEnd) endedByThemselves.push(lastExit);
        if (spawned.pid !== undefined) runningPids.delete(spawned.pid);
        // Waits for its last output, but not for long: its own children may hold the pipes open.
        const end = () => settle({ code, signal });
        const late = setTimeout(() => setImmediate(end), lastOutputMsMax);
        spawned.once('close', () => {
          clearTimeout(late);
          end();
        });
      });
      spawned.once('error', (error) => {
        output += `${error.message}\n`;
        settle({ code: -1, signal: null });
      });
    });
    for (const stream of [spawned.stdout, spawned.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        output = (output + text).slice(-outputCharsMax);
        if (options.outputFile !== undefined) appendFileSync(options.outputFile, text);
      });
    }
    letParentEnd(spawned);
    if (spawned.pid !== undefined) runningPids.add(spawned.pid);
    return { process: spawned, exited };
  }

  async function untilHealthy(): Promise<void> {
    const started = current;
    let ended: Exit | undefined;
    void started.exited.then((exit) => {
      ended = exit;
    });
    const view = { pid: started.process.pid ?? 0, output: () => output };
    try {
      await until(async () => ended !== undefined || (await options.healthy(view)), {
        deadlineMs: options.healthyDeadlineMs,
        what: `${options.name} is healthy`,
      });
    } catch (error) {
      signal('SIGKILL');
      throw new Error(`${(error as Error).message}; it wrote:\n${output.slice(-4_000)}`, { cause: error });
    }
    if (ended !== undefined) {
      throw new Error(
        `${options.name} ended with ${ended.signal ?? `code ${ended.code}`}; it wrote:\n${output.slice(-4_000)}`,
      );
    }
  }

  function signal(name: NodeJS.Signals): void {
    if (isAlive(current.process)) process.kill(current.process.pid as number, name);
  }

  async function end(name: 'SIGTERM' | 'SIGKILL', deadlineMs: number): Promise<Exit> {
    isAskedToEnd = true;
    signal(name);
    return within(current.exited, deadlineMs);
  }

  const child: Child = {
    name: options.name,
    get pid() {
      return current.process.pid ?? 0;
    },
    get running() {
      return isAlive(current.process);
    },
    get ended() {
      return lastExit;
    },
    get exited() {
      // While somebody waits for the child to end, this process stays alive.
      if (isAlive(current.process)) current.process.ref();
      return current.exited;
    },
    endedByThemselves,
    output: () => output,
    kill9: () => end('SIGKILL', 60_000),
    sigterm: (deadlineMs = 60_000) => end('SIGTERM', deadlineMs),
    async stop() {
      signal('SIGCONT');
      try {
        return await end('SIGTERM', 20_000);
      } catch {
        return end('SIGKILL', 60_000);
      }
    },
    sigstop: () => signal('SIGSTOP'),
    sigcont: () => signal('SIGCONT'),
    async restart(moreEnv = {}) {
      if (isAlive(current.process)) await child.stop();
      current = begin(moreEnv);
      await untilHealthy();
    },
  };
  await untilHealthy();
  return child;
}

/** Starts a child again whenever it has ended, as a service manager does, until the returned function is called. */
export function keepRunning(child: Child): () => void {
  let isWatched = true;
  const watch = async () => {
    while (isWatched) {
      await child.exited;
      // A start that fails also ends the process, so the loop tries again.
      if (isWatched) await child.restart().catch(() => undefined);
    }
  };
  void watch();
  return () => {
    isWatched = false;
  };
}

function letParentEnd(process: ChildProcess): void {
  process.unref();
  process.channel?.unref();
  for (const stream of [process.stdout, process.stderr])
    (stream as unknown as { unref(): void } | null)?.unref();
}
