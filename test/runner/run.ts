// Runs test files, some of them side by side, and reports them as one run. `deploy/local/test.mjs` calls it.

import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { watchIdleCores } from './idle-cores.js';
import { laneOf, nameOf, secondsMaxOf } from './lanes.js';
import { createReport } from './report.js';
import { inOrder, nextFile, type Planned } from './schedule.js';
import { temporaryRoot } from './temporary-root.js';
import { type FileResult, removeDir, runFile } from './test-file.js';

export { isQuick, isThorough } from './lanes.js';

/** What a file without a record is taken to need. */
const unknown: Recorded = { seconds: 60, cpuSeconds: 12 };
const stillRunningEveryMs = 60_000;
/** Long enough for a file that has just started to take its share of the CPU. */
const idleMeasuredEveryMs = 1_500;

export type RunOptions = {
  readonly root: string;
  /** Compiled files, relative to the root. */
  readonly files: readonly string[];
  /** Records how long each file took, for the order of later runs. */
  readonly record: boolean;
  readonly sharing?: Sharing | undefined;
  /** For tests of the runner itself. */
  readonly secondsMax?: number;
};

/** What several files share: it starts before the first of them and ends after the last one. */
export type Sharing = {
  readonly files: readonly string[];
  readonly start: () => Promise<Shared>;
};

export type Shared = {
  /** Environment of the files that share it. */
  readonly env: NodeJS.ProcessEnv;
  readonly stop: () => Promise<void>;
};

/** Settles when all files and everything they started have ended, with the exit code: 0, 1, or 130 after a signal. */
export async function runFiles(options: RunOptions): Promise<number> {
  const { root, sharing } = options;
  const shared = await sharing?.start();
  let sharingLeft = sharing?.files.length ?? 0;
  const dir = mkdtempSync(join(temporaryRoot(), 'sluice-tests-'));
  // Others may read the folder, since some tests start programs as another user.
  chmodSync(dir, 0o755);
  const interrupted = new AbortController();
  const interrupt = () => interrupted.abort();
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, interrupt);
  const report = createReport((text) => process.stdout.write(text));
  const startedAt = performance.now();
  const results: FileResult[] = [];
  try {
    await inLanes(planned(options), interrupted.signal, async ({ path, shares }, number) => {
      const result = await runFile(path, {
        root,
        env: shares ? shared?.env : undefined,
        dir: join(dir, String(number)),
        secondsMax: options.secondsMax ?? secondsMaxOf(path),
        stopping: interrupted.signal,
      });
      results.push(result);
      report.add(result);
      if (!shares) return;
      sharingLeft -= 1;
      if (sharingLeft === 0) await shared?.stop();
    });
  } finally {
    if (sharingLeft > 0) await shared?.stop();
    for (const signal of signals) process.off(signal, interrupt);
    removeDir(dir);
  }
  const well = await report.end((performance.now() - startedAt) / 1_000);
  if (interrupted.signal.aborted) return 130;
  if (well && options.record) record(root, results);
  return well ? 0 : 1;
}

/**
 * Starts each file as soon as it may run beside the others; settles when all have ended, or after a stop when the running ones have.
 */
async function inLanes(
  files: readonly Planned[],
  stopping: AbortSignal,
  run: (file: Planned, number: number) => Promise<void>,
): Promise<void> {
  const waiting = inOrder(files);
  const running = new Map<Planned, { readonly since: number; readonly ended: Promise<void> }>();
  const progress = setInterval(() => printRunning(running), stillRunningEveryMs);
  const idleSinceLast = watchIdleCores();
  let number = 0;
  const startFiles = (idleCores: number) => {
    // Idle cores justify only one more file, since that may take them all.
    for (let left = idleCores; ; left = 0) {
      const file = stopping.aborted ? undefined : nextFile(waiting, [...running.keys()], left);
      if (file === undefined) return;
      waiting.splice(waiting.indexOf(file), 1);
      number += 1;
      const ended = run(file, number).finally(() => running.delete(file));
      running.set(file, { since: performance.now(), ended });
    }
  };
  const measure = setInterval(() => startFiles(idleSinceLast()), idleMeasuredEveryMs);
  try {
    startFiles(0);
    while (running.size > 0) {
      await Promise.race([...running.values()].map(({ ended }) => ended));
      startFiles(0);
    }
  } finally {
    clearInterval(progress);
    clearInterval(measure);
  }
}

function printRunning(running: ReadonlyMap<Planned, { readonly since: number }>): void {
  const names = [...running].map(
    ([{ path }, { since }]) => `${nameOf(path)} (${Math.round((performance.now() - since) / 1_000)} s)`,
  );
  process.stderr.write(`sluice: running ${names.join(', ')}\n`);
}

function planned({ root, files, sharing }: RunOptions): Planned[] {
  const recorded = readRecords(root);
  return files.map((path) => ({
    path,
    lane: laneOf(path),
    shares: sharing?.files.includes(path) ?? false,
    ...(recorded[nameOf(path)] ?? unknown),
  }));
}

/** How long a file took when it was recorded, and how much CPU time. */
type Recorded = { readonly seconds: number; readonly cpuSeconds: number };

/** The records by the names of files. */
function readRecords(root: string): Record<string, Recorded> {
  return JSON.parse(readFileSync(secondsFile(root), 'utf8')) as Record<string, Recorded>;
}

function record(root: string, results: readonly FileResult[]): void {
  const recorded = { ...readRecords(root) };
  for (const { path, seconds, cpuSeconds = seconds / 4 } of results)
    recorded[nameOf(path)] = { seconds: Math.ceil(seconds), cpuSeconds: Math.ceil(cpuSeconds) };
  const lines = Object.keys(recorded)
    .sort()
    .map((name) => {
      const { seconds, cpuSeconds } = recorded[name] as Recorded;
      return `  ${JSON.stringify(name)}: { "seconds": ${seconds}, "cpuSeconds": ${cpuSeconds} }`;
    });
  writeFileSync(secondsFile(root), `{\n${lines.join(',\n')}\n}\n`);
}

function secondsFile(root: string): string {
  return join(root, 'test/runner/seconds.json');
}
