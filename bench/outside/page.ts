// Writes the results of a load on a running deployment: JSON, a page with plots, and files for other programs. Also adds up the logs of
// several generators.

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { BenchError } from '../failure.js';
import { type Column, markdownTable, tableOf, textTable } from '../figures.js';
import { countEndings, latenciesOf, type MergedSecond } from '../load/second.js';
import { plotLink, writeFiles } from '../results.js';
import { csvOf, histogramLog, prometheusText, readHistogramLogs, sinceOf } from './files.js';
import type { OutsideOptions } from './options.js';
import {
  type LoggedOutcome,
  latencyOf,
  type Outcome,
  outcomeOf,
  type Percentile,
  percentiles,
  percentText,
} from './outcome.js';
import { drawKnee, drawSeconds } from './plots.js';
import type { Tried } from './search.js';

export type Found = {
  readonly scenario: string;
  readonly outcome: Outcome;
  /** For a search: all rates that were tried, and the highest one that kept the bounds. */
  readonly tried?: readonly Tried[];
  readonly highestRate?: number | undefined;
  /** Whether the generator, not the service, ended the search, or did not send all requests that were due. */
  readonly endedByGenerator?: boolean;
  readonly acknowledged: number;
  /** Broken bounds, in words. */
  readonly missed: readonly string[];
};

export async function writeFound(
  path: string,
  found: Found,
  seconds: readonly MergedSecond[],
  { apiKeys: _keys, writeKey: _writeKey, clickhouseUrl: _url, ...options }: OutsideOptions,
  print: (text: string) => void,
): Promise<void> {
  const { scenario, outcome, tried, missed } = found;
  const plots = {
    seconds: await drawSeconds(seconds),
    ...(tried && { knee: await drawKnee(tried, options.bounds) }),
  };
  const series = seconds.map((second) => ({
    atMs: second.atMs,
    endings: countEndings([second]),
    latencyMs: latencyOf(latenciesOf([second])),
  }));
  const table = tableOfFound(`${scenario}, ms since ${sinceOf(outcome)}`, tried ?? [{ outcome }]);
  const lines = [
    ...missed.map((words) => `- missed: ${words}`),
    ...Object.keys(plots).map((name) => plotLink(path, name, name)),
  ];
  const page = [`# ${scenario}, on a deployment that already runs`, markdownTable(table), lines.join('\n')];
  writeFiles(path, { format: 'load-1', options, ...found, series }, `${page.join('\n\n')}\n`, plots);
  writeSeries(path, scenario, outcome, seconds);
  const written = `${relative(process.cwd(), path)}.json, .md, .hlog, .csv and .prom`;
  print(`\n${textTable(table)}\n\nwritten: ${written}\n`);
}

function writeSeries(
  path: string,
  name: string,
  outcome: LoggedOutcome,
  seconds: readonly MergedSecond[],
): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(`${path}.hlog`, histogramLog(seconds));
  writeFileSync(`${path}.csv`, csvOf(seconds));
  writeFileSync(`${path}.prom`, prometheusText(name, outcome, seconds));
}

type Row = { readonly kept?: boolean; readonly outcome: LoggedOutcome };

function tableOfFound(title: string, rows: readonly Row[]) {
  return tableOf<Row>(rows, [
    [title, ({ kept }) => (kept === undefined ? '' : kept ? 'kept' : 'not kept')],
    ['asked for/s', ({ outcome }) => outcome.rate],
    ['requests', ({ outcome }) => outcome.requests],
    ['requests/s', ({ outcome }) => outcome.perSecond],
    ...(Object.keys(percentiles) as Percentile[]).map(
      (name): Column<Row> => [name, ({ outcome }) => outcome.latencyMs[name]],
    ),
    ['errors', ({ outcome }) => percentText(outcome.errors)],
    ['limit', ({ outcome }) => outcome.limit],
  ]);
}

/** `npm run bench -- merge A.hlog B.hlog [--out PATH]` */
export function mergeLogs(args: readonly string[], print: (text: string) => void): void {
  const options = { out: { type: 'string' } } as const;
  const { values, positionals: files } = parseArgs({ args: [...args], options, allowPositionals: true });
  if (files.length === 0) throw new BenchError('merge takes histogram logs, and --out PATH');
  const seconds = readHistogramLogs(files);
  // A log does not say what limited its load, or whether it had a rate.
  const { limit: _, ...outcome } = outcomeOf({ seconds, generatorShare: 0 }, { seconds: seconds.length });
  print(`${textTable(tableOfFound(`${files.length} logs, ms`, [{ outcome }]))}\n`);
  if (values.out !== undefined) writeSeries(values.out, 'merged', outcome, seconds);
}
