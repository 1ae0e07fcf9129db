// What the scenario `pipeline` prints and writes: bench/results/pipeline.json with every run, pipeline.md with
// the medians.

import { processNames } from './deployment.js';
import { figure, markdownTable, median } from './figures.js';
import type { LatencyRun, Spread } from './latency.js';
import { describeInWords, type Machine } from './machine.js';
import type { Run } from './measure.js';
import { writeResults } from './results.js';

/** The runs of one way to send events. */
export type WayRuns = { readonly name: string; readonly what: string; readonly runs: readonly Run[] };

export type PipelineResults = {
  readonly machine: Machine;
  /** As given on the command line. */
  readonly options: string;
  readonly throughput: readonly WayRuns[];
  readonly latencies: readonly LatencyRun[];
};

export function writePipelineResults(results: PipelineResults): void {
  writeResults('pipeline', results, pipelineReport(results));
}

/** The medians of all runs, in Markdown. */
export function pipelineReport({ machine, options, throughput, latencies }: PipelineResults): string {
  const command = `npm run bench -- pipeline${options === '' ? '' : ` ${options}`}`;
  const parts = [
    '# Pipeline: the cost of an event from its request to its row',
    `Written by \`${command}\`. ${describeInWords(machine)}`,
  ];
  if (throughput.length > 0) {
    parts.push('## Highest rate, CPU an event', throughputNote, throughputTable(throughput));
  }
  if (latencies.length > 0) {
    const rate = figure(latencies[0]?.ratePerSecond ?? Number.NaN);
    parts.push(`## Latency at ${rate} events a second`, latencyNote, latencyTable(latencies));
    parts.push(latencyCosts(latencies));
  }
  return `${parts.join('\n\n')}\n`;
}

const throughputNote = `Medians of the runs. CPU is in µs an event, user and system, counted until ClickHouse held every event;
merges that it makes later are not in it. The load generator runs on the same cores and takes its CPU from
the service, so rates are lower than they would be without it, while CPU an event hardly depends on it.
"Redis script" is the time that Redis itself counts for scripts, in µs an event; "rewrites" of its file are
made by a child whose CPU is in "redis"; "others' share" is the part of the machine's CPU time that other
programs used meanwhile. After every run ClickHouse held exactly the events that were acknowledged, each
under an id of its own.`;

function throughputTable(throughput: readonly WayRuns[]): string {
  const figures: readonly [string, (run: Run) => number][] = [
    ['requests/s', (run) => run.requestsPerSecond],
    ['events/s', (run) => run.eventsPerSecond],
    ...processNames.map((name): [string, (run: Run) => number] => [name, (run) => run.cpu[name]]),
    ['sum', (run) => run.cpuSum],
    ['generator', (run) => run.generatorCpu],
    ['events a script call', (run) => run.events / run.redis.evalshaCalls],
    ['Redis script', (run) => run.redis.evalshaCpu],
    ['rewrites', (run) => run.redis.rewrites],
    ["others' share", (run) => run.othersShare],
  ];
  const rows = throughput.map(({ what, runs }) => [
    what,
    ...figures.map(([, value]) => figure(median(runs.map(value)))),
  ]);
  return markdownTable(['', ...figures.map(([name]) => name)], rows);
}

const latencyNote = `One event a request, sent when due whether or not earlier requests were answered. Times in ms. "Queryable"
counts from a probe's acknowledgement to the answer of ClickHouse that first shows it; it is asked when a
segment has left Redis.`;

function latencyTable(latencies: readonly LatencyRun[]): string {
  const row = (what: string, value: (run: LatencyRun) => Spread) => [
    what,
    ...(['p50', 'p99', 'max'] as const).map((point) =>
      figure(median(latencies.map((run) => value(run)[point]))),
    ),
  ];
  return markdownTable(
    ['', 'p50', 'p99', 'max'],
    [
      row('acknowledged, since sent', (run) => run.acknowledgedSinceSentMs),
      row('acknowledged, since due', (run) => run.acknowledgedSinceDueMs),
      row('queryable, since acknowledged', (run) => run.queryableMs),
    ],
  );
}

function latencyCosts(latencies: readonly LatencyRun[]): string {
  const of = (value: (run: LatencyRun) => number) => figure(median(latencies.map(value)));
  const cpu = processNames.map((name) => `${name} ${of((run) => run.cpu[name])}`);
  return (
    `CPU at this rate in µs an event: ${cpu.join(', ')}, sum ${of((run) => run.cpuSum)}; generator and probes ${of((run) => run.generatorCpu)}. ` +
    `${of((run) => run.probes)} probes a run, ${of((run) => run.questionsPerSecond)} questions a second of ${of(
      (run) => run.questionMs,
    )} ms each. Other programs used ${of((run) => run.othersShare)} of the machine's CPU time.`
  );
}

export function sayRun(name: string, run: Run): void {
  const cpu = processNames.map((process) => `${process} ${figure(run.cpu[process])}`).join(', ');
  process.stdout.write(
    `${name}: ${figure(run.requestsPerSecond)} requests/s, ${figure(run.eventsPerSecond)} events/s; µs an event: ` +
      `${cpu}, sum ${figure(run.cpuSum)}, generator ${figure(run.generatorCpu)}; ` +
      `all stored ${figure(run.storedAfterMs)} ms after the last acknowledgement; others' share ${figure(run.othersShare)}\n`,
  );
}

export function sayLatency(name: string, run: LatencyRun): void {
  const spread = ({ p50, p99, max }: Spread) =>
    `p50 ${figure(p50)}, p99 ${figure(p99)}, max ${figure(max)} ms`;
  sayRun(name, run);
  process.stdout.write(
    `  acknowledged, since sent: ${spread(run.acknowledgedSinceSentMs)}\n` +
      `  acknowledged, since due: ${spread(run.acknowledgedSinceDueMs)}\n` +
      `  queryable: ${spread(run.queryableMs)} (${run.probes} probes)\n`,
  );
}
