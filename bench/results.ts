// The results of a session as they are written: one file for programs, by which two sessions are compared, and one page
// for people with its plots.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BacklogResult } from './backlog/backlog.js';
import type { DeletionResult } from './deletion/deletions.js';
import type { ProgramRun } from './deployment/program.js';
import type { DeskResult } from './desk/desk.js';
import { BenchError } from './failure.js';
import type { CurveLevel } from './latency/curve.js';
import type { HalfLoadResult } from './latency/half-load.js';
import type { Machine } from './machine.js';
import type { FlatResult } from './throughput/flat.js';
import type { KeysResult } from './throughput/keys.js';
import type { ThroughputRun } from './throughput/throughput.js';

/** Of one way to send records, or of a floor. */
export type WayRuns = {
  readonly name: string;
  readonly what: string;
  /** Sluice, or what it is compared with. */
  readonly subject: string;
  readonly runs: readonly ThroughputRun[];
  /** Absent for floors without connections. */
  readonly connections?: number;
  /** For loads into Sluice the mean; for the engine alone that of every insert. */
  readonly rowsPerInsert?: number;
};

export type Failure = { readonly scenario: string; readonly message: string };

export type Results = {
  readonly format: 2;
  readonly machine: Machine;
  /** As given on the command line. */
  readonly command: string;
  readonly seconds: number;
  readonly ways: readonly WayRuns[];
  readonly curve?: readonly CurveLevel[];
  readonly halfLoad?: HalfLoadResult;
  readonly backlog?: BacklogResult;
  readonly flat?: FlatResult;
  readonly keys?: KeysResult;
  readonly backfill?: ProgramRun;
  readonly producer?: ProgramRun & { readonly producerBytes: number };
  readonly deletion?: DeletionResult;
  readonly desk?: DeskResult;
  /** Scenarios that failed, and why. */
  readonly failures: readonly Failure[];
  /** Those that failed in the session and passed when they ran again, at the date. */
  readonly repeated?: readonly (Failure & { readonly date: string })[];
};

const folder = fileURLToPath(new URL('../../bench/results/', import.meta.url));

/** The usual place of a session's results: beside the sources if nothing on which they depend was changed. */
export function usualPath(name: string, standard: boolean): string {
  const runs = fileURLToPath(new URL('../../.data/bench/', import.meta.url));
  return `${standard ? folder : runs}${name}`;
}

/** Writes `path.json`, `path.md`, and each plot as `path-<name>.svg`. */
export function writeFiles(
  path: string,
  data: object,
  page: string,
  plots: Readonly<Record<string, string>>,
): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(`${path}.json`, `${JSON.stringify(data, null, 1)}\n`);
  writeFileSync(`${path}.md`, page);
  for (const [name, svg] of Object.entries(plots)) writeFileSync(`${path}-${name}.svg`, svg);
}

/** The name of a plot's file on its page. */
export function plotFile(path: string, name: string): string {
  return `${basename(path)}-${name}.svg`;
}

/** Reads what a session wrote. Throws BenchError if the file is something else. */
export function readResults(path: string): Results {
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new BenchError(`${path} cannot be read: ${(error as Error).message}`);
  }
  const results = value as Partial<Results> | null;
  if (results?.format !== 2 || !Array.isArray(results.ways)) {
    throw new BenchError(`${path} does not contain the results of a session`);
  }
  return results as Results;
}
