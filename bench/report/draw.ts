// Draws the page and the plots of results that were written earlier.

import { readFileSync } from 'node:fs';
import { type ClientResults, clientReport } from '../client/report.js';
import { type DeletionResults, deletionPlots, deletionReport } from '../deletion/report.js';
import { BenchError } from '../failure.js';
import { readResults, writeFiles } from '../results.js';
import { makePage } from './page.js';

/** `path` is that of the results, without the extension. Throws BenchError if they are not results. */
export async function drawPage(path: string): Promise<void> {
  const value = readJson(path);
  if (isDeletion(value)) {
    writeFiles(path, value, deletionReport(value), await deletionPlots(value));
    return;
  }
  if (isClient(value)) return writeFiles(path, value, clientReport(value), {});
  const results = readResults(`${path}.json`);
  const { markdown, plots } = await makePage(results, path);
  writeFiles(path, results, markdown, plots);
}

function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(`${path}.json`, 'utf8'));
  } catch (error) {
    throw new BenchError(`${path}.json cannot be read: ${(error as Error).message}`);
  }
}

/** Whether these are the results of the scenario `deletion`. */
function isDeletion(value: unknown): value is DeletionResults {
  return Array.isArray((value as Partial<DeletionResults> | null)?.one);
}

/** Whether these are the results of the scenario `client`. */
function isClient(value: unknown): value is ClientResults {
  return Array.isArray((value as Partial<ClientResults> | null)?.own?.runs);
}
