// The record of a run of `npm run chaos`, one line per round, so that a stopped run can be continued.

import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Layout } from './deployment.js';
import type { RoundResult } from './round.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
export const runFolder = join(root, '.data', 'chaos');
const fileOf = (layout: Layout) => join(runFolder, layout === 'one' ? 'run.jsonl' : `run-${layout}.jsonl`);

export type Run = { readonly seed: number; readonly startedAt: string };

export type RunFile = { readonly run: Run; readonly results: RoundResult[]; add(result: RoundResult): void };

/** Opens the run that was begun; begins a new one if there is none or if `fresh` is set. */
export function openRun(seed: number, fresh: boolean, layout: Layout): RunFile {
  const file = fileOf(layout);
  const append = (line: object) => appendFileSync(file, `${JSON.stringify(line)}\n`);
  if (fresh) rmSync(file, { force: true });
  mkdirSync(dirname(file), { recursive: true });
  if (!existsSync(file)) append({ seed, startedAt: new Date().toISOString() });
  const [run, ...results] = readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as object);
  return { run: run as Run, results: results as RoundResult[], add: append };
}
