// Adds up the logs of several generators.

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { parseArgs } from 'node:util';
import { BenchError } from '../failure.js';
import { figure, textTable } from '../figures.js';
import { sumOfHistograms } from '../load/histogram.js';
import { csvOf, histogramLog, readHistogramLogs } from './files.js';
import { latencyOf, percentiles } from './outcome.js';

/** `npm run bench -- merge A.hlog B.hlog [--out PATH]` */
export function mergeLogs(args: readonly string[], print: (text: string) => void): void {
  const { values, positionals: files } = parseArgs({
    args: [...args],
    options: { out: { type: 'string' } },
    allowPositionals: true,
  });
  const { out } = values;
  if (files.length === 0) throw new BenchError('merge takes histogram logs, and --out PATH');
  const seconds = readHistogramLogs(files);
  const sum = sumOfHistograms(seconds);
  const head = ['', 'requests', 'seconds', 'requests/s', ...Object.keys(percentiles)];
  const perSecond = sum.totalCount / seconds.length;
  const row = [
    `${files.length} logs, ms`,
    String(sum.totalCount),
    String(seconds.length),
    figure(perSecond),
    ...Object.values(latencyOf(sum)).map(figure),
  ];
  print(`${textTable({ head, rows: [row] })}\n`);
  if (out === undefined) return;
  mkdirSync(dirname(`${out}.hlog`), { recursive: true });
  writeFileSync(`${out}.hlog`, histogramLog(seconds));
  writeFileSync(`${out}.csv`, csvOf(seconds.map((second) => ({ ...second, endings: {} }))));
}
