// Adds up the logs of several generators.

import { parseArgs } from 'node:util';
import { BenchError } from '../failure.js';
import { textTable } from '../figures.js';
import { readHistogramLogs } from './files.js';
import { outcomeOf } from './outcome.js';
import { tableOfFound, writeSeries } from './page.js';

/** `npm run bench -- merge A.hlog B.hlog [--out PATH]` */
export function mergeLogs(args: readonly string[], print: (text: string) => void): void {
  const { values, positionals: files } = parseArgs({
    args: [...args],
    options: { out: { type: 'string' } },
    allowPositionals: true,
  });
  if (files.length === 0) throw new BenchError('merge takes histogram logs, and --out PATH');
  const seconds = readHistogramLogs(files);
  // A log does not say what limited its load, or whether it had a rate.
  const { limit: _limit, ...outcome } = outcomeOf(
    { seconds, generatorShare: 0 },
    { seconds: seconds.length },
  );
  print(`${textTable(tableOfFound(`${files.length} logs, ms`, [{ outcome }]))}\n`);
  if (values.out !== undefined) writeSeries(values.out, 'merged', outcome, seconds);
}
