// Formats the results of a load for other programs: HdrHistogram's log and CSV, second by second, and Prometheus's text format for the whole
// run. Also reads the logs of several generators and adds them up.

import { HistogramLogReader, HistogramLogWriter } from 'hdr-histogram-js';
import { BenchError } from '../failure.js';
import { bitBucketSize, type Histogram } from '../load/histogram.js';
import { addUp, countEndings, latenciesOf, type MergedSecond } from '../load/second.js';
import { readText } from '../results.js';
import { type LoggedOutcome, latencyOf, type Percentile, percentiles } from './outcome.js';

/** An HdrHistogram log in µs: for each second one interval for the good answers, and one with a tag for each other ending. */
export function histogramLog(seconds: readonly MergedSecond[]): string {
  let text = '';
  const writer = new HistogramLogWriter((part) => {
    text += part;
  });
  writer.outputLogFormatVersion();
  writer.outputStartTime(seconds[0]?.atMs ?? 0);
  writer.outputLegend();
  for (const { atMs, endings } of seconds) {
    for (const [ending, histogram] of Object.entries(endings)) {
      if (ending !== '200') histogram.tag = ending;
      writer.outputIntervalHistogram(histogram, atMs / 1_000, atMs / 1_000 + 1, 1_000);
    }
  }
  return text;
}

/** Reads several logs and adds up the seconds that began at the same time. Throws BenchError, which names the file. */
export function readHistogramLogs(paths: readonly string[]): MergedSecond[] {
  const intervals = paths.flatMap((path) => {
    const found: [atMs: number, ending: string, histogram: Histogram][] = [];
    const log = readText(path);
    try {
      const reader = new HistogramLogReader(log, bitBucketSize, false);
      for (let one = reader.nextIntervalHistogram(); one !== null; one = reader.nextIntervalHistogram()) {
        found.push([Math.round(one.startTimeStampMsec), one.tag === 'NO TAG' ? '200' : one.tag, one]);
      }
    } catch (error) {
      throw new BenchError(`${path} is no histogram log: ${(error as Error).message}`);
    }
    if (found.length === 0) throw new BenchError(`${path} is no histogram log, or an empty one`);
    return found;
  });
  return addUp(intervals);
}

/** One line per second: requests by ending, and the latency in ms. */
export function csvOf(seconds: readonly MergedSecond[]): string {
  const kinds = Object.keys(countEndings(seconds)).sort();
  const head = ['time', 'requests', ...kinds, ...Object.keys(percentiles).map((name) => `${name}_ms`)];
  const rows = seconds.map((second) => {
    const counts = kinds.map((kind) => second.endings[kind]?.totalCount ?? 0);
    const requests = counts.reduce((total, count) => total + count, 0);
    const latencies = Object.values(latencyOf(latenciesOf([second])));
    return [new Date(second.atMs).toISOString(), requests, ...counts, ...latencies];
  });
  return `${[head, ...rows].map((row) => row.join(',')).join('\n')}\n`;
}

/** The whole run as a text file for Prometheus: a summary of the latency, and requests by ending. */
export function prometheusText(way: string, outcome: LoggedOutcome, seconds: readonly MergedSecond[]) {
  const sum = latenciesOf(seconds);
  const latency = 'sluice_bench_latency_seconds';
  const quantiles = Object.entries(outcome.latencyMs).map(([name, ms]) => {
    const quantile = percentiles[name as Percentile] / 100;
    return `${latency}{scenario="${way}",quantile="${quantile}"} ${ms / 1_000}`;
  });
  return `${[
    `# HELP ${latency} Time to a good answer since a request was ${sinceOf(outcome)}.`,
    `# TYPE ${latency} summary`,
    ...quantiles,
    `${latency}_sum{scenario="${way}"} ${(sum.mean * sum.totalCount) / 1e6 || 0}`,
    `${latency}_count{scenario="${way}"} ${sum.totalCount}`,
    '# HELP sluice_bench_requests_total Requests by how they ended: a status, or another ending.',
    '# TYPE sluice_bench_requests_total counter',
    ...Object.entries(outcome.endings).map(
      ([ending, count]) => `sluice_bench_requests_total{scenario="${way}",ending="${ending}"} ${count}`,
    ),
  ].join('\n')}\n`;
}

/** In words: from which moment latencies are measured. */
export function sinceOf({ rate }: Pick<LoggedOutcome, 'rate'>): string {
  return rate === undefined ? 'sent' : 'due';
}
