// The smallest possible results of a bench session; each test adds the parts that it needs.

import type { LatencyFigures } from '../../bench/load/histogram.js';
import type { FoundOf, Results, WayRuns } from '../../bench/results.js';
import type { ThroughputRun } from '../../bench/throughput/throughput.js';

export function resultsOf(parts: Partial<Results> = {}): Results {
  return {
    format: 2,
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
    ways: [],
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
    generator: 'wrk',
    limit: 'service',
    othersShare: 0,
    storedAfterMs: 10,
    ...parts,
  };
}

export function wayOf(name: string, ...cpuSums: readonly number[]): WayRuns {
  return { name, what: name, subject: 'sluice', runs: cpuSums.map((cpuSum) => runOf(cpuSum)) };
}

export function withCommits(name: string, ...cpuSums: readonly number[]): WayRuns {
  const runs = cpuSums.map((cpuSum) =>
    runOf(cpuSum, {
      cpu: { api: cpuSum - 20, redis: 12, worker: 4, clickhouse: 4 },
      systemCpu: { api: (cpuSum - 20) / 4, redis: 5, worker: 1, clickhouse: 1 },
      commits: { count: 40, records: 1000 },
    }),
  );
  return { name, what: name, subject: 'sluice', connections: 64, runs };
}

export function latencyOf(p99: number): LatencyFigures {
  return {
    sinceDueMs: { p50: p99 / 10, p99, max: 2 * p99 },
    curve: [0, 50, 90, 99, 100].map((percent) => ({ percent, ms: (p99 * (percent + 1)) / 100 })),
  };
}

/** A half-load result with the p99 of each minute, of the service and of the floor; `redisMib` gives Redis's memory over time (0 to 1). */
export function halfLoadOf(
  sluice: readonly number[],
  synced: readonly number[],
  {
    queryableMs = 500,
    redisMib = () => 50,
  }: { queryableMs?: number; redisMib?: (share: number) => number } = {},
): FoundOf<'halfLoad'> {
  const runOfSubject = (subject: string, p99s: readonly number[]) => ({
    subject,
    run: runOf(20, { latency: latencyOf([...p99s].sort((a, b) => a - b)[Math.floor(p99s.length / 2)] ?? 0) }),
    seconds: p99s.map((p99, at) => ({ at, p50: p99 / 10, p99, max: 2 * p99 })),
    p99OfMinutes: p99s,
  });
  const mib = 1024 ** 2;
  return {
    minutes: 5,
    ratePerSecond: 5000,
    runs: [runOfSubject('sluice', sluice), runOfSubject('uws-synced', synced)],
    queryable: {
      ms: { p50: 100, p99: queryableMs, max: 2 * queryableMs },
      probes: 100,
      questionsPerSecond: 20,
    },
    samples: Array.from({ length: 101 }, (_, i) => {
      const redis = redisMib(i / 100) * mib;
      const memory = { api: 100 * mib, redis, worker: 100 * mib, clickhouse: 400 * mib };
      return { seconds: i, memory };
    }),
  };
}
