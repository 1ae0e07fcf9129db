// A load as files for other programs: HdrHistogram's log, CSV and Prometheus' text, a line per second; and logs that are
// read again and added up.

import { readFileSync } from 'node:fs';
import { HistogramLogReader, HistogramLogWriter } from 'hdr-histogram-js';
import { BenchError } from '../failure.js';
import { bitBucketSize, newHistogram, sumOfHistograms } from '../load/histogram.js';
import type { MergedSecond } from '../load/second.js';
import { latencyOf, type Outcome, percentiles } from './outcome.js';

/** A HdrHistogram log in µs, an interval per second. */
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

/** Reads logs of several generators; seconds of the same time are added up. Throws BenchError, which names the file. */
export function readHistogramLogs(paths: readonly string[]): Pick<MergedSecond, 'atMs' | 'latencies'>[] {
  const merged = new Map<number, ReturnType<typeof newHistogram>>();
  for (const path of paths) {
    let found = 0;
    const log = readLog(path);
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

function readLog(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new BenchError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

/** A line per second: how many requests ended, how, and their latency in ms. */
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

/** The whole run as Prometheus reads it from a file: a summary of the latency, and requests by how they ended. */
export function prometheusText(way: string, outcome: Outcome, seconds: readonly MergedSecond[]): string {
  const sum = sumOfHistograms(seconds);
  const quantiles = Object.entries(percentiles).map(
    ([name, percent]) =>
      `sluice_bench_latency_seconds{scenario="${way}",quantile="${percent / 100}"} ${outcome.latencyMs[name as keyof typeof percentiles] / 1_000}`,
  );
  return `${[
    '# HELP sluice_bench_latency_seconds Time from when a request was due to its answer.',
    '# TYPE sluice_bench_latency_seconds summary',
    ...quantiles,
    `sluice_bench_latency_seconds_sum{scenario="${way}"} ${(sum.mean * sum.totalCount) / 1e6 || 0}`,
    `sluice_bench_latency_seconds_count{scenario="${way}"} ${sum.totalCount}`,
    '# HELP sluice_bench_requests_total Requests by how they ended: a status, or what else became of them.',
    '# TYPE sluice_bench_requests_total counter',
    ...Object.entries(outcome.endings).map(
      ([ending, count]) => `sluice_bench_requests_total{scenario="${way}",ending="${ending}"} ${count}`,
    ),
  ].join('\n')}\n`;
}
