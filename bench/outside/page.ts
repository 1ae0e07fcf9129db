// Writes what a load on a running deployment found: JSON, a page with plots, and files for other programs.

import { writeFileSync } from 'node:fs';
import { basename, relative } from 'node:path';
import { markdownTable, tableOf, textTable } from '../figures.js';
import type { MergedSecond } from '../load/second.js';
import { writeFiles } from '../results.js';
import { csvOf, histogramLog, prometheusText } from './files.js';
import type { OutsideOptions } from './options.js';
import { latencyOf, type Outcome, type Percentile, percentiles, percentText } from './outcome.js';
import { drawKnee, drawSeconds } from './plots.js';
import type { Tried } from './search.js';

/** The result of one scenario. */
export type Found = {
  readonly scenario: string;
  readonly outcome: Outcome;
  /** Of a search: all rates, and the highest one that kept the bounds. */
  readonly tried?: readonly Tried[];
  readonly highestRate?: number;
  readonly acknowledged: number;
  /** Broken bounds, in words. */
  readonly missed: readonly string[];
};

export async function writeFound(
  path: string,
  found: Found,
  seconds: readonly MergedSecond[],
  { apiKey: _key, writeKey: _writeKey, clickhouseUrl: _url, ...options }: OutsideOptions,
  print: (text: string) => void,
): Promise<void> {
  const plots = {
    seconds: await drawSeconds(seconds),
    ...(found.tried && { knee: await drawKnee(found.tried, options.bounds) }),
  };
  const series = seconds.map(({ latencies, ...second }) => ({ ...second, latencyMs: latencyOf(latencies) }));
  const table = tableOfFound(found);
  const page = [
    `# ${found.scenario}, on a deployment that already runs`,
    markdownTable(table),
    [
      ...found.missed.map((words) => `- missed: ${words}`),
      ...Object.keys(plots).map((name) => `![${name}](${basename(path)}-${name}.svg)`),
    ].join('\n'),
  ];
  writeFiles(path, { format: 'load-1', options, ...found, series }, `${page.join('\n\n')}\n`, plots);
  writeFileSync(`${path}.hlog`, histogramLog(seconds));
  writeFileSync(`${path}.csv`, csvOf(seconds));
  writeFileSync(`${path}.prom`, prometheusText(found.scenario, found.outcome, seconds));
  const written = `${relative(process.cwd(), path)}.json, .md, .hlog, .csv and .prom`;
  print(`\n${textTable(table)}\n\nwritten: ${written}\n`);
}

function tableOfFound({ scenario, outcome, tried }: Found) {
  const single: Partial<Tried> = { outcome, ...(outcome.rate && { rate: outcome.rate }) };
  const names = Object.keys(percentiles) as Percentile[];
  return tableOf<Partial<Tried>>(tried ?? [single], [
    [scenario, ({ kept }) => (kept === undefined ? '' : kept ? 'kept' : 'not kept')],
    ['asked for/s', ({ rate }) => rate],
    ['answers/s', (row) => row.outcome?.perSecond],
    ...names.map((name) => [name, (row: Partial<Tried>) => row.outcome?.latencyMs[name]] as const),
    ['errors', (row) => percentText(row.outcome?.errors ?? 0)],
    ['limit', (row) => row.outcome?.limit],
  ]);
}
