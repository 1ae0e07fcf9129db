// What a session found, as it is written: one file for programs, which two sessions are compared by, and one page
// for people with its plots beside it.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BackfillResult } from './backfill.js';
import type { BacklogResult } from './backlog.js';
import type { DeletionBesideResult } from './deletion-beside.js';
import { BenchError } from './failure.js';
import type { FlatResult } from './flat.js';
import type { LatencyRun } from './latency.js';
import type { Machine } from './machine.js';
import type { SegmentsResult } from './segments.js';
import type { SoakResult } from './soak.js';
import type { ThroughputRun } from './throughput.js';

/** Of one way to send records, or of a floor. */
export type WayRuns = {
  readonly name: string;
  readonly what: string;
  /** Sluice, or what it is compared with. */
  readonly subject: string;
  readonly runs: readonly ThroughputRun[];
  /** Absent of floors that nothing connects to. */
  readonly connections?: number;
  /** Of bulk loads into Sluice: rows of one insert, on average; of the engine: of each. */
  readonly rowsPerInsert?: number;
};

export type LatencyRuns = {
  readonly subject: string;
  /** Of the highest rate of single events; undefined when the rate was given. */
  readonly share: number | undefined;
  readonly ratePerSecond: number;
  readonly runs: readonly LatencyRun[];
};

export type Failure = { readonly scenario: string; readonly message: string };

export type Results = {
  readonly format: 1;
  readonly machine: Machine;
  /** As given on the command line. */
  readonly command: string;
  readonly seconds: number;
  readonly elsewhere: boolean;
  readonly ways: readonly WayRuns[];
  readonly latencies: readonly LatencyRuns[];
  readonly segments?: SegmentsResult;
  readonly backlog?: BacklogResult;
  readonly flat?: FlatResult;
  readonly soak?: SoakResult;
  readonly backfill?: BackfillResult;
  readonly deletionBeside?: DeletionBesideResult;
  /** Scenarios that failed, and why. */
  readonly failures: readonly Failure[];
  /** Those that failed in the session and did not when they ran again, at the date. */
  readonly repeated?: readonly (Failure & { readonly date: string })[];
};

const folder = fileURLToPath(new URL('../../bench/results/', import.meta.url));

/** Writes a scenario's results and page to bench/results. */
export function writeResults(scenario: string, data: object, report: string): void {
  writeFiles(`${folder}${scenario}`, data, report, {});
}

/** Where a session's results usually go: beside the sources when nothing was changed that they depend on. */
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

/** The name of a plot's file in its page. */
export function plotFile(path: string, name: string): string {
  return `${basename(path)}-${name}.svg`;
}

/** Reads what a session wrote. Throws BenchError when the file is something else. */
export function readResults(path: string): Results {
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new BenchError(`${path} cannot be read: ${(error as Error).message}`);
  }
  const results = value as Partial<Results> | null;
  if (results?.format !== 1 || !Array.isArray(results.ways) || !Array.isArray(results.latencies)) {
    throw new BenchError(`${path} holds no results of a session`);
  }
  return results as Results;
}
