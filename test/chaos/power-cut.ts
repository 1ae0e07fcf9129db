// Simulates a power cut of Redis's machine, which loses what Redis wrote to its append-only files and had not synced. strace records which
// bytes were synced. After Redis is killed, each file is truncated to its length at its last completed fdatasync.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';

export type PowerCut = {
  unsyncedBytes(): number;
  /**
   * Kills the process and truncates its files; settles with the number of lost bytes. Everything is kept that was written before
   * `syncedMs`, when the last completed sync began, in ms since 1970.
   */
  cut(
    kill: () => Promise<unknown>,
  ): Promise<{ readonly lostBytes: number; readonly syncs: number; readonly syncedMs: number }>;
};

/**
 * Watches a running redis-server from now on; settles when the first sync was seen. `syncMs` delays every fdatasync, as a slow disk does,
 * so that a cut finds unsynced bytes.
 */
export async function watchForPowerCut(pid: number, syncMs: number): Promise<PowerCut> {
  const dir = tempDir('strace');
  const file = join(dir, 'trace');
  const tracer = spawn(
    'strace',
    [
      ...['-f', '-y', '-qq', '-ttt', '-p', String(pid), '-o', file],
      ...['-e', 'trace=write,fdatasync,fsync', '-e', `inject=fdatasync:delay_enter=${syncMs * 1000}`],
    ],
    { stdio: 'ignore' },
  );
  tracer.unref();
  const ended = once(tracer, 'exit');
  await until(
    () => tracer.exitCode === null && readTrace(read(file)).syncs > 0,
    'strace sees Redis sync its append-only file',
  );
  return {
    unsyncedBytes: () => sumOf(readTrace(read(file)).unsynced),
    cut: async (kill) => {
      await kill();
      await ended;
      const { unsynced, syncs, syncedMs } = readTrace(read(file));
      for (const [path, bytes] of unsynced) truncateSync(path, statSync(path).size - bytes);
      removeTempDir(dir);
      return { lostBytes: sumOf(unsynced), syncs, syncedMs };
    },
  };
}

function sumOf(bytes: ReadonlyMap<string, number>): number {
  return [...bytes.values()].reduce((sum, some) => sum + some, 0);
}

export async function canTrace(): Promise<boolean> {
  const sleeper: ChildProcess = spawn('sleep', ['60'], { stdio: 'ignore' });
  const tracer = spawn('strace', ['-p', String(sleeper.pid), '-o', '/dev/null'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let output = '';
  tracer.stderr.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  // strace prints that it has attached to the process, or ends with another message if it may not.
  await Promise.race([once(tracer.stderr, 'data'), once(tracer, 'close'), once(tracer, 'error')]).catch(
    () => undefined,
  );
  tracer.kill('SIGKILL');
  sleeper.kill('SIGKILL');
  return output.includes('attached');
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return ''; // Not written yet.
  }
}

const isAppendOnly = /<([^>]*\.aof)>/;

/**
 * Finds how many bytes at the end of each append-only file no completed sync covers. A sync covers what was written before it began. If
 * calls of two threads overlap, strace prints each in two lines, "unfinished" and "resumed". `strace -ttt` prints when a call began.
 */
export function readTrace(trace: string): {
  readonly unsynced: Map<string, number>;
  readonly syncs: number;
  readonly syncedMs: number;
} {
  let syncs = 0;
  let syncedMs = 0;
  const written = new Map<string, number>();
  const synced = new Map<string, number>();
  /** The sync that is under way in each thread: its file, and how many bytes were written to that before. */
  const running = new Map<
    string,
    { readonly path: string; readonly covers: number; readonly atMs: number }
  >();
  const writing = new Map<string, string>();
  for (const line of trace.split('\n')) {
    const [, thread = '', seconds = '0', call = ''] = /^(\d+)\s+(?:(\d+\.\d+)\s+)?(.*)$/.exec(line) ?? [];
    const atMs = Number(seconds) * 1000;
    const path = isAppendOnly.exec(call)?.[1];
    const result = Number(/=\s(-?\d+)[^=]*$/.exec(call)?.[1] ?? -1);
    if (call.startsWith('write(') && path !== undefined) {
      if (call.includes('<unfinished')) writing.set(thread, path);
      else if (result > 0) written.set(path, (written.get(path) ?? 0) + result);
    } else if (call.includes('write resumed')) {
      const resumed = writing.get(thread);
      if (resumed !== undefined && result > 0) written.set(resumed, (written.get(resumed) ?? 0) + result);
      writing.delete(thread);
    } else if (/^(?:fdatasync|fsync)\(/.test(call) && path !== undefined) {
      const covers = written.get(path) ?? 0;
      if (call.includes('<unfinished')) running.set(thread, { path, covers, atMs });
      else if (result === 0) {
        synced.set(path, covers);
        syncedMs = atMs;
        syncs += 1;
      }
    } else if (/(?:fdatasync|fsync) resumed/.test(call)) {
      const ended = running.get(thread);
      if (ended !== undefined && result === 0) {
        synced.set(ended.path, ended.covers);
        syncedMs = ended.atMs;
        syncs += 1;
      }
      running.delete(thread);
    }
  }
  const unsynced = new Map([...written].map(([path, bytes]) => [path, bytes - (synced.get(path) ?? 0)]));
  return { unsynced, syncs, syncedMs };
}
