// Runs one of our programs until it ends: for steps between the services.

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { launch, type Program } from './launch.js';
import type { DataDirLock } from './lock.js';
import { logLineText } from './log-line.js';
import { StartError } from './start-error.js';

const stopMsMax = 5_000;
const waitingLineEveryMs = 10_000;

/** Settles with what the program printed on stdout. Throws StartError, with its last lines, when it fails. */
export async function runOnce(
  name: string,
  program: Program,
  lock: DataDirLock,
  stopping: AbortSignal,
  say: (line: string) => void,
): Promise<string> {
  const waiting = setInterval(() => say(`still waiting for ${name}`), waitingLineEveryMs);
  const child = launch(program, ['ignore', 'pipe', 'pipe', lock.fd, 'ipc'], 'TERM');
  if (child.pid !== undefined) lock.note(name, child.pid);
  let killTimer: NodeJS.Timeout | undefined;
  const stop = () => {
    child.kill('SIGTERM');
    killTimer = setTimeout(() => child.kill('SIGKILL'), stopMsMax);
  };
  stopping.addEventListener('abort', stop);
  const [output, errors] = collect(child);
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  stopping.removeEventListener('abort', stop);
  clearTimeout(killTimer);
  clearInterval(waiting);
  if (code === 0 || stopping.aborted) return output();
  const errorLines = errors()
    .split('\n')
    .map(logLineText)
    .filter((line) => line !== undefined);
  throw new StartError(`${name} ended with ${signal ?? `code ${code}`}: ${errorLines.slice(-3).join(' | ')}`);
}

function collect(child: ChildProcess): [() => string, () => string] {
  const [output, errors] = [child.stdout, child.stderr].map((stream) => {
    let text = '';
    stream?.setEncoding('utf8').on('data', (chunk: string) => {
      text = (text + chunk).slice(-100_000);
    });
    return () => text;
  });
  return [output as () => string, errors as () => string];
}
