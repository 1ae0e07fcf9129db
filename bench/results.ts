// The results of a session: the shape of the JSON file, where files go, and how they are read and written.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { runDeletions } from './deletion/deletions.js';
import type { runStream } from './deletion/stream.js';
import type { runDesk } from './desk/desk.js';
import { BenchError, messageOf } from './failure.js';
import type { runBacklog } from './latency/backlog.js';
import type { runCurve } from './latency/curve.js';
import type { runHalfLoad } from './latency/half-load.js';
import type { Machine } from './machine.js';
import type { runFlat } from './throughput/flat.js';
import type { runKeys } from './throughput/keys.js';
import type { runBackfill, runProducer } from './throughput/programs.js';
import type { runReplicas } from './throughput/replicas.js';
import type { runServers } from './throughput/servers.js';
import type { ThroughputRun } from './throughput/throughput.js';

/** The runs of one way, of the service, a floor or a peer. */
export type WayRuns = {
  readonly name: string;
  readonly what: string;
  /** Sluice, the floor or the peer. */
  readonly subject: string;
  readonly runs: readonly ThroughputRun[];
  /** Absent for ClickHouse alone. */
  readonly connections?: number;
};

export type Failure = { readonly scenario: string; readonly message: string };

type Of<Run extends (context: never) => Promise<unknown>> = Awaited<ReturnType<Run>>;

export type Results = {
  readonly format: 2;
  readonly machine: Machine;
  readonly command: string;
  readonly seconds: number;
  readonly ways: readonly WayRuns[];
  readonly curve?: Of<typeof runCurve>;
  readonly halfLoad?: Of<typeof runHalfLoad>;
  readonly backlog?: Of<typeof runBacklog>;
  readonly flat?: Of<typeof runFlat>;
  readonly keys?: Of<typeof runKeys>;
  readonly backfill?: Of<typeof runBackfill>;
  readonly producer?: Of<typeof runProducer>;
  readonly servers?: Of<typeof runServers>;
  readonly replicas?: Of<typeof runReplicas>;
  readonly deletion?: Of<typeof runDeletions>;
  readonly stream?: Of<typeof runStream>;
  readonly desk?: Of<typeof runDesk>;
  readonly failures: readonly Failure[];
};

/** What a scenario found. */
export type FoundOf<Key extends keyof Results> = NonNullable<Results[Key]>;

const folder = fileURLToPath(new URL('../../bench/results/', import.meta.url));

/** Where results go without --out: with standard options into the sources' folder, to be published. */
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

/** The Markdown that shows a plot on the page of that path. `shows` is for readers who cannot see it. */
export function plotLink(path: string, name: string, shows: string): string {
  return `![${shows}](${basename(path)}-${name}.svg)`;
}

/** Reads the results of a session. Throws BenchError, which names the file, if it contains anything else. */
export function readResults(path: string): Results {
  let results: Results | null = null;
  try {
    results = JSON.parse(readText(path)) as Results | null;
  } catch (error) {
    if (error instanceof BenchError) throw error;
  }
  if (results?.format === 2 && Array.isArray(results.ways)) return results;
  throw new BenchError(`${path} does not contain the results of a session`);
}

/** Reads a file. Throws BenchError, which names the file, if that fails. */
export function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new BenchError(`${path} cannot be read: ${messageOf(error)}`);
  }
}
