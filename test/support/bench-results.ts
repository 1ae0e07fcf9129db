// Results of a bench session for tests: as small as possible, with the parts that a test is about on top.

import type { LatencyRun } from '../../bench/latency/latency.js';
import type { LatencyRuns, Results, WayRuns } from '../../bench/results.js';
import type { ConnectionsLevel } from '../../bench/throughput/connections.js';
import type { ThroughputRun } from '../../bench/throughput/throughput.js';

export function resultsOf(parts: Partial<Results> = {}): Results {
  return {
    format: 1,
    machine: {
      date: '2026-01-02T03:04:05.000Z',
      commit: '0123456789ab',
      cores: 2,
      processor: 'Test',
      memoryGib: 8,
      kernel: '6.1',
      dataOnDisk: true,
      versions: { node: '20.0.0' },
    },
    command: 'all',
    seconds: 60,
    elsewhere: false,
    ways: [],
    latencies: [],
    failures: [],
    ...parts,
  };
}

/** A run with this many µs of CPU per record. */
export function runOf(cpuSum: number, parts: Partial<ThroughputRun> = {}): ThroughputRun {
  return {
    records: 1000,
    requests: 1000,
    seconds: 1,
    recordsPerSecond: 1000,
    requestsPerSecond: 1000,
    cpu: { api: cpuSum },
    cpuSum,
    generatorCpu: 1,
    othersShare: 0,
    storedAfterMs: 10,
    ...parts,
  };
}

/** One way, with one run for each cost. */
export function wayOf(name: string, ...cpuSums: readonly number[]): WayRuns {
  return { name, what: name, subject: 'sluice', runs: cpuSums.map((cpuSum) => runOf(cpuSum)) };
}

/** A level with one run of the service for each cost, at 25 events per commit, beside a floor of 10 µs. */
export function levelOf(connections: number, keys: boolean, ...cpuSums: readonly number[]): ConnectionsLevel {
  const sluice = cpuSums.map((cpuSum) =>
    runOf(cpuSum, {
      cpu: { api: cpuSum - 20, redis: 12, worker: 4, clickhouse: 4 },
      systemCpu: { api: (cpuSum - 20) / 4, redis: 5, worker: 1, clickhouse: 1 },
      commits: { count: 40, records: 1000 },
    }),
  );
  return { connections, keys, sluice, uws: cpuSums.map(() => runOf(10)) };
}

/** Latencies at half load: one run for each p99 of acknowledgements, in ms. */
export function latenciesOf(subject: string, p99s: readonly number[], queryableP99 = 500): LatencyRuns {
  const runs = p99s.map((p99) => latencyRunOf(subject, p99, queryableP99));
  return { subject, share: 0.5, ratePerSecond: 5000, runs };
}

export function latencyRunOf(subject: string, p99: number, queryableP99 = 500): LatencyRun {
  const spread = { p50: p99 / 10, p99, max: 2 * p99 };
  const queryable = {
    ms: { ...spread, p99: queryableP99 },
    probes: 100,
    questionsPerSecond: 4,
    questionMs: 5,
  };
  return {
    ...runOf(20),
    ratePerSecond: 5000,
    latency: {
      acknowledgedMs: spread,
      sinceSentMs: spread,
      sinceDueMs: spread,
      curve: [0, 50, 90, 99, 100].map((percent) => ({ percent, ms: (p99 * (percent + 1)) / 100 })),
    },
    ...(subject === 'sluice' ? { queryable } : {}),
  };
}
