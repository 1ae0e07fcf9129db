// Runs one test file as a process, reads its events, and ends everything that it left running.

import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { launch } from '../../deploy/local/launch.js';
import { briefly } from '../harness/environment.js';
import type { TestEvent } from './reporter.js';

export type FileResult = {
  readonly path: string;
  readonly events: readonly TestEvent[];
  /** What the file and its children printed: the last 100,000 characters. */
  readonly output: string;
  readonly seconds: number;
  readonly cpuSeconds: number | undefined;
  /** Why the file failed as a whole, whatever its tests report. */
  readonly fault: string | undefined;
};

export type FileOptions = {
  readonly root: string;
  /** Further environment of the file's process. */
  readonly env: NodeJS.ProcessEnv | undefined;
  /** The folder for the file's temporary files. No other file has it, so it also identifies the file's processes. */
  readonly dir: string;
  readonly secondsMax: number;
  readonly stopping: AbortSignal;
};

const outputCharsMax = 100_000;
const endMsMax = 60_000;
/** Longer than a busy machine needs to deliver the last output of a file. */
const lastOutputMsMax = 5_000;
/**
 * Without the optimizing compiler for WebAssembly, the first `fetch` of a process takes 45 ms less of the CPU. If JavaScript is optimized
 * seven times later than by default, a process that loads the usual modules takes 20 to 40 ms less.
 */
const engineOptions = ['--liftoff-only', '--interrupt-budget=500000', ...briefly];
const reporter = new URL('./reporter.js', import.meta.url).href;

/** Settles when the file's process and all processes that it left are gone. Never rejects because of a test. */
export async function runFile(path: string, options: FileOptions): Promise<FileResult> {
  const dir = join(options.dir, 'tmp');
  mkdirSync(dir, { recursive: true });
  const eventsFile = join(options.dir, 'events');
  const startedAt = performance.now();
  const seconds = () => (performance.now() - startedAt) / 1_000;
  // With the first variable, node:test would report to the runner that runs this process. With the second, each process of Node that starts
  // reads all certificates, in 30 ms of the CPU, and tests call nobody outside.
  const { NODE_TEST_CONTEXT: _, NODE_EXTRA_CA_CERTS: _certificates, ...env } = process.env;
  const reporting = [`--test-reporter=${reporter}`, `--test-reporter-destination=${eventsFile}`];
  const args = [...engineOptions, ...reporting, path];
  const child = launch(
    { command: process.execPath, args, env: { ...env, ...options.env, TMPDIR: dir }, cwd: options.root },
    ['ignore', 'pipe', 'pipe'],
    'KILL',
  );
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      output = (output + text).slice(-outputCharsMax);
    });
  }
  const closed = new Promise<void>((settle) => child.once('close', () => settle()));
  let ended: string | undefined;
  const end = (why: string) => {
    ended ??= why;
    child.kill('SIGKILL');
  };
  const timer = setTimeout(
    () => end(`did not end within ${options.secondsMax} s`),
    options.secondsMax * 1_000,
  );
  const stop = () => end('was interrupted');
  if (options.stopping.aborted) stop();
  options.stopping.addEventListener('abort', stop);
  const exit = await new Promise<string | undefined>((settle) => {
    child.once('error', ({ message }) => settle(message));
    child.once('exit', (code, signal) =>
      settle(code === 0 ? undefined : `ended with ${signal ?? `code ${code}`}`),
    );
  });
  clearTimeout(timer);
  options.stopping.removeEventListener('abort', stop);
  const left = await endProcessesOf(dir);
  // Waits for the last output, but not for long: a process elsewhere may hold the pipe open.
  await Promise.race([closed, pause(lastOutputMsMax, undefined, { ref: false })]);
  const events = readEvents(eventsFile);
  const wholeSeconds = seconds();
  removeDir(options.dir);
  return {
    path,
    events,
    output,
    seconds: wholeSeconds,
    cpuSeconds: events.find(({ type }) => type === 'end')?.data.cpuSeconds,
    fault: left ?? faultOf(events, ended, exit),
  };
}

function faultOf(
  events: readonly TestEvent[],
  ended: string | undefined,
  exit: string | undefined,
): string | undefined {
  const at = unfinished(events);
  const where = at === undefined ? '' : `, in the test "${at}"`;
  if (ended !== undefined) return `${ended}${where}`;
  if (!events.some(({ type }) => type === 'end')) {
    return `${exit ?? 'ended with code 0'} before its tests had${where}`;
  }
  return events.some(({ type }) => type === 'test:fail') ? undefined : exit;
}

/** The innermost test that has begun and not ended. */
function unfinished(events: readonly TestEvent[]): string | undefined {
  const open: string[] = [];
  for (const { type, data } of events) {
    const key = `${data.nesting} ${data.name}`;
    if (type === 'test:dequeue') open.push(key);
    if ((type === 'test:pass' || type === 'test:fail') && open.includes(key)) {
      open.splice(open.lastIndexOf(key), 1);
    }
  }
  return open.at(-1)?.replace(/^\d+ /, '');
}

/** A killed process may have left its last line unfinished. */
function readEvents(file: string): TestEvent[] {
  const lines = readFileSync(file, { encoding: 'utf8', flag: 'a+' }).split('\n').slice(0, -1);
  return lines.map((text) => JSON.parse(text) as TestEvent);
}

/** Ends the processes that a file left running; settles with a message if some cannot be ended. */
async function endProcessesOf(dir: string): Promise<string | undefined> {
  const deadline = performance.now() + endMsMax;
  for (;;) {
    const pids = processesOf(dir);
    if (pids.length === 0) return undefined;
    if (performance.now() > deadline) return `left processes that cannot be ended: ${pids.join(', ')}`;
    for (const pid of pids) kill(pid);
    await pause(20);
  }
}

/** All processes that were started with the file's temporary folder in their environment; none where the system does not show it. */
function processesOf(dir: string): number[] {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => `\0${environmentOf(pid)}`.includes(`\0TMPDIR=${dir}\0`))
    .map(Number);
}

/** The environment of a process; empty if it is gone or ending, or belongs to another user. */
function environmentOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (['ENOENT', 'ESRCH', 'EACCES', 'EPERM'].includes(code)) return '';
    throw error;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Removes a folder, including disks that a killed file left mounted there. */
export function removeDir(dir: string): void {
  try {
    for (const mounted of mountedIn(dir)) spawnSync('umount', ['--lazy', mounted]);
    rmSync(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  } catch (error) {
    process.stderr.write(`sluice: left ${dir}: ${(error as Error).message}\n`);
  }
}

function mountedIn(dir: string): string[] {
  if (process.platform !== 'linux') return [];
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n');
  return mounts.map((line) => line.split(' ')[1] ?? '').filter((path) => path.startsWith(`${dir}/`));
}
