// Files of a load for other programs: HdrHistogram's log and CSV, second by second, and Prometheus's text of the whole run. Also
// reads logs of several generators and adds them up.

import { HistogramLogReader, HistogramLogWriter } from 'hdr-histogram-js';
import { BenchError } from '../failure.js';
import { bitBucketSize, newHistogram, sumOfHistograms } from '../load/histogram.js';
import type { MergedSecond } from '../load/second.js';
import { readText } from '../results.js';
import { latencyOf, type Outcome, type Percentile, percentiles } from './outcome.js';

/** An HdrHistogram log in µs, one interval per second. */
export function histogramLog(seconds: readonly Pick<MergedSecond, 'atMs' | 'latencies'>[]): string {
  let text = '';
  const writer = new HistogramLogWriter((part) => {
    text += part;
  });
  writer.outputLogFormatVersion();
  writer.outputStartTime(seconds[0]?.atMs ?? 0);
  writer.outputLegend();
  for (const { atMs, latencies } of seconds) {
    writer.outputIntervalHistogram(latencies, atMs / 1_000, atMs / 1_000 + 1, 1_000);
  }
  return text;
}

/** Reads several logs and adds up seconds of the same time. Throws BenchError, which names the file. */
export function readHistogramLogs(paths: readonly string[]): Pick<MergedSecond, 'atMs' | 'latencies'>[] {
  const merged = new Map<number, ReturnType<typeof newHistogram>>();
  for (const path of paths) {
    let found = 0;
    const log = readText(path);
    try {
      const reader = new HistogramLogReader(log, bitBucketSize, false);
      for (let one = reader.nextIntervalHistogram(); one !== null; one = reader.nextIntervalHistogram()) {
        const atMs = Math.round(one.startTimeStampMsec / 1_000) * 1_000;
        const sum = merged.get(atMs) ?? newHistogram();
        sum.add(one);
        merged.set(atMs, sum);
        found += 1;
      }
    } catch (error) {
      throw new BenchError(`${path} is no histogram log: ${(error as Error).message}`);
    }
    if (found === 0) throw new BenchError(`${path} is no histogram log, or an empty one`);
  }
  return [...merged].map(([atMs, latencies]) => ({ atMs, latencies })).sort((a, b) => a.atMs - b.atMs);
}

/** One line per second: requests by how they ended, and their latency in ms. */
export function csvOf(seconds: readonly MergedSecond[]): string {
  const kinds = [...new Set(seconds.flatMap(({ endings }) => Object.keys(endings)))].sort();
  const head = ['time', 'requests', ...kinds, ...Object.keys(percentiles).map((name) => `${name}_ms`)];
  const rows = seconds.map(({ atMs, endings, latencies }) => [
    new Date(atMs).toISOString(),
    latencies.totalCount,
    ...kinds.map((kind) => endings[kind] ?? 0),
    ...Object.values(latencyOf(latencies)),
  ]);
  return `${[head, ...rows].map((row) => row.join(',')).join('\n')}\n`;
}

/** The whole run as a text file for Prometheus: a summary of the latency, and requests by how they ended. */
export function prometheusText(way: string, outcome: Outcome, seconds: readonly MergedSecond[]): string {
  const sum = sumOfHistograms(seconds);
  const latency = 'sluice_bench_latency_seconds';
  const quantiles = Object.entries(outcome.latencyMs).map(([name, ms]) => {
    const quantile = percentiles[name as Percentile] / 100;
    return `${latency}{scenario="${way}",quantile="${quantile}"} ${ms / 1_000}`;
  });
  return `${[
    `# HELP ${latency} Time from when a request was due to its answer.`,
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
