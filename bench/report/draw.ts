// Draws the page and the plots of results that were written before.

import { readFileSync } from 'node:fs';
import { type DeletionResults, deletionPlots, deletionReport } from '../deletion-report.js';
import { BenchError } from '../failure.js';
import { readResults, writeFiles } from '../results.js';
import { makePage } from './page.js';

/** `path` is that of the results, without its ending. Throws BenchError when they are none. */
export async function drawPage(path: string): Promise<void> {
  const deletion = readDeletion(path);
  if (deletion !== undefined) {
    writeFiles(path, deletion, deletionReport(deletion), await deletionPlots(deletion));
    return;
  }
  const results = readResults(`${path}.json`);
  const { markdown, plots } = await makePage(results, path);
  writeFiles(path, results, markdown, plots);
}

/** The results of the scenario `deletion`, if these are. */
function readDeletion(path: string): DeletionResults | undefined {
  let value: Partial<DeletionResults> | null;
  try {
    value = JSON.parse(readFileSync(`${path}.json`, 'utf8')) as Partial<DeletionResults> | null;
  } catch (error) {
    throw new BenchError(`${path}.json cannot be read: ${(error as Error).message}`);
  }
  return Array.isArray(value?.one) ? (value as DeletionResults) : undefined;
}
