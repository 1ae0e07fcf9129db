// What the scenario `backfill` prints and, after a whole run of its own, writes: bench/results/backfill.json
// and backfill.md.

import { figure, markdownTable } from './figures.js';
import { describeInWords, type Machine } from './machine.js';
import { writeResults } from './results.js';

export type BackfillResult = {
  readonly events: number;
  /** Of all request bodies. */
  readonly bytes: number;
  /** Requests sent again after a 503. */
  readonly repeats: number;
  readonly acknowledgedSeconds: number;
  readonly storedSeconds: number;
  /** µs of CPU an event of each kind of process; empty when the deployment is not the bench's own. */
  readonly cpu: Readonly<Record<string, number>>;
  /** The same of the generator: reading the file, making the requests, sending them. */
  readonly generatorCpu: number;
  /** Of the machine's CPU time, what other programs used; absent when the deployment is not the bench's own. */
  readonly othersShare?: number;
};

export type BackfillReport = {
  readonly machine: Machine;
  readonly options: string;
  readonly result: BackfillResult;
};

export function writeBackfillResult(report: BackfillReport): void {
  writeResults('backfill', report, backfillReport(report));
}

export function backfillReport({ machine, options, result }: BackfillReport): string {
  const command = `npm run bench -- backfill${options === '' ? '' : ` ${options}`}`;
  const costs = Object.entries(result.cpu);
  const sum = costs.reduce((total, [, cost]) => total + cost, 0);
  const head = ['', 'seconds', 'events/s', ...costs.map(([name]) => name), 'sum', 'generator'];
  const cells = [
    figure(result.storedSeconds),
    figure(result.events / result.storedSeconds),
    ...costs.map(([, cost]) => figure(cost)),
    figure(costs.length > 0 ? sum : Number.NaN),
    figure(result.generatorCpu),
  ];
  const others =
    result.othersShare === undefined
      ? ''
      : ` Other programs used ${figure(result.othersShare)} of the machine's CPU time.`;
  return `# Backfill: ${result.events.toLocaleString('en-US')} flights in bulk

Written by \`${command}\`. ${describeInWords(machine)}

From the first request until ClickHouse held every flight; the last one was acknowledged after
${figure(result.acknowledgedSeconds)} s (${figure(result.events / result.acknowledgedSeconds)} events/s). CPU is in µs an event, user and system. The generator, which reads
the Parquet file and sends ${figure(result.bytes / result.events)} bytes an event, runs on the same cores. ${result.repeats} requests had to be sent
again.${others} Afterwards ClickHouse and the file agreed on the flights and the sum of delays of every origin.

${markdownTable(head, [['flights', ...cells]])}
`;
}
