// One child process of a test that can be killed, frozen and started again. No child outlives the test's
// process: the kernel kills it with its parent, and so does the exit hook here. A child does not keep the
// test's process alive either, so a test that fails before it stops its services still ends.

import type { ChildProcess } from 'node:child_process';
import { launch, type Program } from '../../deploy/local/launch.js';
import { until, within } from './wait.js';

const outputCharsMax = 1_000_000;
const lastWordsMsMax = 200;

export type Exit = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

export type Child = {
  readonly name: string;
  /** Of the current process; another one after `restart`. */
  readonly pid: number;
  readonly running: boolean;
  /** Settles when the current process ends. */
  readonly exited: Promise<Exit>;
  /** What all processes of this handle wrote to stdout and stderr, the last million characters. */
  output(): string;
  /** Each of the three ends the process and settles when it is gone; gone already is fine. */
  kill9(): Promise<Exit>;
  sigterm(deadlineMs?: number): Promise<Exit>;
  /** SIGTERM, and SIGKILL if that does not end it within 20 s. */
  stop(): Promise<Exit>;
  sigstop(): void;
  sigcont(): void;
  /**
   * Starts the same program again (after ending it, if it runs) and settles when it is healthy. `moreEnv` is
   * for that process only, not for the ones after it.
   */
  restart(moreEnv?: NodeJS.ProcessEnv): Promise<void>;
};

export type ChildOptions = {
  readonly name: string;
  readonly program: Program;
  /** Gives node children an IPC channel, whose end tells them that their parent is gone. */
  readonly ipc?: boolean;
  /** Asked again and again until it answers true. */
  readonly healthy: (child: { readonly pid: number; output(): string }) => boolean | Promise<boolean>;
  readonly healthyDeadlineMs: number;
};

const runningPids = new Set<number>();
process.once('exit', () => {
  for (const pid of runningPids) signalGroup(pid, 'SIGKILL');
});

/** Starts a process; settles when it is healthy, rejects with its output when it ends or stays unhealthy. */
export async function startChild(options: ChildOptions): Promise<Child> {
  let output = '';
  let current = begin({});

  function begin(moreEnv: NodeJS.ProcessEnv) {
    const spawned = launch(
      { ...options.program, env: { ...options.program.env, ...moreEnv } },
      ['ignore', 'pipe', 'pipe', ...(options.ipc ? (['ipc'] as const) : [])],
      'KILL',
    );
    const exited = new Promise<Exit>((settle) => {
      spawned.once('exit', (code, signal) => {
        if (spawned.pid !== undefined) runningPids.delete(spawned.pid);
        // What it wrote last is read first, as long as no child of its own holds the pipes open.
        const end = () => settle({ code, signal });
        const late = setTimeout(() => setImmediate(end), lastWordsMsMax);
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

  function running(): boolean {
    return (
      current.process.pid !== undefined &&
      current.process.exitCode === null &&
      current.process.signalCode === null
    );
  }

  function signal(name: NodeJS.Signals): void {
    if (running()) process.kill(current.process.pid as number, name);
  }

  async function end(name: 'SIGTERM' | 'SIGKILL', deadlineMs: number): Promise<Exit> {
    signal(name);
    return within(current.exited, deadlineMs);
  }

  const child: Child = {
    name: options.name,
    get pid() {
      return current.process.pid ?? 0;
    },
    get running() {
      return running();
    },
    get exited() {
      // Whoever waits for it keeps this process alive until then.
      if (running()) current.process.ref();
      return current.exited;
    },
    output: () => output,
    kill9: () => end('SIGKILL', 10_000),
    sigterm: (deadlineMs = 30_000) => end('SIGTERM', deadlineMs),
    async stop() {
      signal('SIGCONT');
      try {
        return await end('SIGTERM', 20_000);
      } catch {
        return end('SIGKILL', 10_000);
      }
    },
    sigstop: () => signal('SIGSTOP'),
    sigcont: () => signal('SIGCONT'),
    async restart(moreEnv = {}) {
      if (running()) await child.stop();
      current = begin(moreEnv);
      await untilHealthy();
    },
  };
  await untilHealthy();
  return child;
}

function letParentEnd(process: ChildProcess): void {
  process.unref();
  process.channel?.unref();
  for (const stream of [process.stdout, process.stderr])
    (stream as unknown as { unref(): void } | null)?.unref();
}

function signalGroup(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(-pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
