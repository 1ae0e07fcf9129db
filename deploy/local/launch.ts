// Starts one child process that does not outlive this one and gets no signals from the terminal: Ctrl-C reaches only
// the starter, which stops its children in its own order. The supervisor and the harness use it.

import { type ChildProcess, type StdioOptions, spawn, spawnSync } from 'node:child_process';
import { delimiter, join } from 'node:path';

export type Program = {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly cwd?: string;
};

/**
 * Starts the program in its own process group. Where `setpriv` exists (util-linux), the kernel sends `parentDeathSignal` to the program
 * when this process dies, even by SIGKILL. The process id stays the same, since setpriv replaces itself. To be called from the main thread:
 * the kernel watches the thread that forked.
 */
export function launch(
  program: Program,
  stdio: StdioOptions,
  parentDeathSignal: 'TERM' | 'KILL',
): ChildProcess {
  const setpriv = setprivPath();
  const [command, ...args] =
    setpriv === undefined
      ? ([program.command, ...program.args] as const)
      : ([setpriv, '--pdeathsig', parentDeathSignal, '--', program.command, ...program.args] as const);
  return spawn(command, args, { cwd: program.cwd, env: program.env, stdio, detached: true });
}

/** Whether the child was started and has not ended. */
export function isAlive(child: ChildProcess): boolean {
  return child.pid !== undefined && child.exitCode === null && child.signalCode === null;
}

/** Ends what a launched program has started, such as a rewrite of the append-only file, since that must not outlive this process. */
export function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

let found: { readonly path: string | undefined } | undefined;

/** A full path, since the program's environment may have another PATH. Undefined where setpriv does not work. */
function setprivPath(): string | undefined {
  found ??= {
    path: (process.env.PATH ?? '')
      .split(delimiter)
      .map((folder) => join(folder, 'setpriv'))
      .find(
        (path) => spawnSync(path, ['--pdeathsig', 'TERM', '--', 'true'], { stdio: 'ignore' }).status === 0,
      ),
  };
  return found.path;
}
