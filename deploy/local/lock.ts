// Owns the claim on DATA_DIR: at most one supervisor, with its children, works in it.
//
// The lock is flock(2) on an open file that the children inherit. So the kernel holds it exactly as long as one of them lives, however the
// supervisor ended, and nothing has to be cleaned up after kill -9. The file lists their processes: for the message of a second start, and
// to end processes that a killed supervisor left behind. It also has the start's variables, by which commands find its ports.

import { spawnSync } from 'node:child_process';
import { closeSync, constants, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { startFile, variablesToNote } from '../../src/config.js';
import { identifyProcess, isRunning, type ProcessIdentity, signalProcess } from './process-identity.js';
import { StartError } from './start-error.js';

export type DataDirLock = Awaited<ReturnType<typeof lockDataDir>>;

type Holders = {
  readonly supervisor: ProcessIdentity;
  readonly stopping: boolean;
  readonly children: ProcessIdentity[];
  readonly variables: Readonly<Record<string, string>>;
};

/** The children of a killed start end by themselves. After this time they get SIGTERM, then SIGKILL. */
const terminateAfterMs = 1_000;
const killAfterMs = 20_000;
/** A start that is stopping may take as long as all its kinds of children together. */
const giveUpAfterMs = 100_000;

/**
 * Settles when the lock is taken. Throws StartError when another supervisor holds it. Waits for a supervisor that is stopping, and for the
 * children of one that is gone; ends those children if they do not end by themselves.
 */
export async function lockDataDir(dataDir: string, say: (line: string) => void) {
  const file = startFile(dataDir);
  const fd = openLockFile(dataDir, file);
  const startedAt = performance.now();
  const sent = new Set<NodeJS.Signals>();
  for (let waited = false; !tryLock(fd, file); waited = true) {
    const found = readHolders(file);
    const holders = found === 'unknown' ? undefined : found;
    const supervisor = [holders?.supervisor].find(
      (identity) => identity !== undefined && isRunning(identity),
    );
    if (supervisor !== undefined && !holders?.stopping) {
      throw new StartError(`DATA_DIR ${dataDir} is used by a running start (pid ${supervisor.pid})`);
    }
    const left = holders?.children.filter(isRunning) ?? [];
    const names = left.map(({ name, pid }) => `${name} (pid ${pid})`).join(', ') || 'a process';
    if (!waited) say(`waiting for processes that an earlier start left running: ${names}`);
    const waitedMs = performance.now() - startedAt;
    const sendOnce = (signal: NodeJS.Signals) => {
      if (!sent.has(signal)) for (const child of left) signalProcess(child, signal);
      sent.add(signal);
    };
    if (supervisor === undefined && waitedMs > terminateAfterMs) sendOnce('SIGTERM');
    if (supervisor === undefined && waitedMs > killAfterMs) sendOnce('SIGKILL');
    if (waitedMs > giveUpAfterMs) throw new StartError(`DATA_DIR ${dataDir} is still used by ${names}`);
    await pause(100);
  }

  let holders: Holders = {
    supervisor: identifyProcess('supervisor', process.pid),
    stopping: false,
    children: [],
    variables: variablesToNote(process.env),
  };
  const write = (changes: Partial<Holders>) => {
    holders = { ...holders, ...changes };
    try {
      writeHolders(fd, holders);
    } catch {
      // The disk is full or broken. The kernel holds the lock all the same, and the next write says everything.
    }
  };
  write({});
  return {
    /** The open file. Every child inherits it, and thereby shares the lock. */
    fd,
    /** Records a child under its name, replacing an earlier one of that name. */
    note(name: string, pid: number): void {
      const others = holders.children.filter((child) => child.name !== name);
      write({ children: [...others, identifyProcess(name, pid)] });
    },
    /** From now on, another start waits for the end of this one instead of giving up. */
    noteStopping: () => write({ stopping: true }),
    /** To be called when the children are gone. */
    release(): void {
      ftruncateSync(fd, 0);
      closeSync(fd);
    },
  };
}

function openLockFile(dataDir: string, file: string): number {
  try {
    mkdirSync(dataDir, { recursive: true });
    return openSync(file, constants.O_RDWR | constants.O_CREAT, 0o600);
  } catch (error) {
    throw new StartError(`DATA_DIR ${dataDir} cannot be written (${(error as NodeJS.ErrnoException).code})`);
  }
}

/** Tries to take the lock. flock(1) locks the open file that it shares with this process, and leaves it locked. */
function tryLock(fd: number, file: string): boolean {
  const { status } = spawnSync('flock', ['-n', '3'], { stdio: ['ignore', 'ignore', 'ignore', fd] });
  if (status === 0) return true;
  if (status === 1) return false;
  // flock(1) is missing, or the file system has no locks: rely on the processes listed in the file.
  const holders = readHolders(file);
  if (holders === 'unknown') return false;
  return holders === undefined || ![holders.supervisor, ...holders.children].some(isRunning);
}

/** Undefined if nobody is listed; `unknown` while the file is being written, or if writing it was interrupted. */
function readHolders(file: string): Holders | 'unknown' | undefined {
  const text = readFileSync(file, 'utf8');
  if (text === '') return undefined;
  try {
    return JSON.parse(text) as Holders;
  } catch {
    return 'unknown';
  }
}

/** Writes without emptying the file first: an empty file would say that nobody holds the lock. */
function writeHolders(fd: number, holders: Holders): void {
  const text = Buffer.from(`${JSON.stringify(holders)}\n`);
  writeSync(fd, text, 0, text.length, 0);
  ftruncateSync(fd, text.length);
}
