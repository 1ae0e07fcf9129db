// One measured run: start of the clock, load, wait until everything is stored, end of the clock. CPU time is counted over all
// of it, including the storing, and divided by the records.

import type { Redis } from 'ioredis';
import { type CommandCounts, readCommandCounts } from '../deployment/command-stats.js';
import { type CpuTimes, type ProcessName, processNames } from '../deployment/deployment.js';
import { machineMicroseconds, othersShare } from '../deployment/processes.js';
import { assertStored, plus, type Records, type Store, sumOf, untilCounted } from '../deployment/stored.js';

/** What is loaded and measured: the deployment, or what it is compared with. */
export type Subject = Store & {
  readonly url: string;
  cpu(): CpuTimes;
  /** The part of it that the kernel used; absent if nobody asks. */
  systemCpu?(): CpuTimes;
  /** Of the deployment under test; called while no commits are under way. */
  commits?(): Promise<Commits>;
  /** How many records of the environment are stored; cheap enough to be asked ten times per second. */
  count(appId: string): Promise<number>;
  /** Settles when no background work of an earlier run is left. */
  settle(): Promise<void>;
};

/** Commits since the API started, and the records in them. */
export type Commits = { readonly count: number; readonly records: number };

/**
 * What kept a run from being faster: the service, one process of which had a core for itself; the generator likewise; all
 * cores together; the rate that was asked for; or nothing of these, since both waited for each other or for the disk.
 */
export type Limit = 'service' | 'generator' | 'machine' | 'rate' | 'waiting';

export type Run = {
  /** Acknowledged and stored. */
  readonly records: number;
  readonly requests: number;
  readonly seconds: number;
  readonly recordsPerSecond: number;
  readonly requestsPerSecond: number;
  /** µs of CPU per record, of each kind of process and in total. */
  readonly cpu: CpuTimes;
  readonly cpuSum: number;
  /** The part of `cpu` that the kernel used. */
  readonly systemCpu?: CpuTimes;
  /** µs of CPU per record of the load generator, which the service lacks. */
  readonly generatorCpu: number;
  /** wrk, or the bench itself. */
  readonly generator: string;
  readonly limit: Limit;
  /** The share of the machine's CPU time that neither the subject nor the generator used. Above 0.1 the run is noisy. */
  readonly othersShare: number;
  /** From the last acknowledgement until every record was stored. */
  readonly storedAfterMs: number;
  readonly commits?: Commits;
  readonly redis?: {
    /** Commands inside the scripts and beside them, by script. */
    readonly commandsPerScript: number;
    /** Rewrites of the append-only file that began meanwhile; Redis's CPU includes them. */
    readonly rewrites: number;
  };
};

export type Loaded = {
  readonly requests: number;
  readonly seconds: number;
  /** In µs, and in shares of one core by thread. */
  readonly generatorCpu: number;
  readonly generatorShare: number;
  /** Whether processes other than this one used it. */
  readonly generator?: 'wrk' | 'ClickHouse';
  /** Acknowledged records by table. */
  readonly acknowledged: Records;
};

export type MeasureOptions<Result extends Loaded> = {
  readonly subject: Subject;
  /** Of the deployment under test, for its statistics. */
  readonly redis?: Redis | undefined;
  readonly appId: string;
  /** What the environment held before. */
  readonly before: Records;
  readonly rate?: number | undefined;
  /** The run fails if no new record appears for this long; 30 s by default. */
  readonly stallMs?: number | undefined;
  /** Sends everything; settles when the last request is acknowledged. */
  readonly load: () => Promise<Result>;
};

/** From this share of a core on a process is what limits a run, and from this share of all cores the machine. */
const busy = { core: 0.8, cores: 0.95 };

/** Settles with the figures and what `load` returned; rejects if something was lost, doubled or refused. */
export async function measure<Result extends Loaded>(
  options: MeasureOptions<Result>,
): Promise<{ run: Run; loaded: Result }> {
  const { subject, redis, appId, before } = options;
  await subject.settle();
  const countsBefore = redis && (await readCommandCounts(redis));
  const commitsBefore = await subject.commits?.();
  const systemBefore = subject.systemCpu?.();
  const cpuBefore = subject.cpu();
  const ownBefore = process.cpuUsage();
  const machineBefore = machineMicroseconds();

  const loaded = await options.load();
  const acknowledgedAt = performance.now();
  const usedMeanwhile = cpuBetween(cpuBefore, subject.cpu());
  const machineMeanwhile = machineMicroseconds();
  const expected = plus(before, loaded.acknowledged);
  await untilCounted(() => subject.count(appId), sumOf(expected), options.stallMs);
  const storedAfterMs = performance.now() - acknowledgedAt;

  const machineAfter = machineMicroseconds();
  const own = process.cpuUsage(ownBefore);
  const used = cpuBetween(cpuBefore, subject.cpu());
  const systemUsed = systemBefore && cpuBetween(systemBefore, subject.systemCpu?.() ?? {});
  const commitsAfter = await subject.commits?.();
  const countsAfter = redis && (await readCommandCounts(redis));
  await assertStored(subject, appId, expected);

  const records = sumOf(loaded.acknowledged);
  const { requests, seconds, generator } = loaded;
  const ours = sumCpu(used) + own.user + own.system + (generator === undefined ? 0 : loaded.generatorCpu);
  const machineShare =
    (machineMeanwhile.busy - machineBefore.busy) / (machineMeanwhile.all - machineBefore.all);
  const busiest = Math.max(...Object.values(usedMeanwhile)) / 1e6 / seconds;
  const run: Run = {
    records,
    requests,
    seconds,
    recordsPerSecond: records / seconds,
    requestsPerSecond: requests / seconds,
    cpu: perRecord(used, records),
    cpuSum: sumCpu(used) / records,
    ...(systemUsed && { systemCpu: perRecord(systemUsed, records) }),
    generatorCpu: loaded.generatorCpu / records,
    generator: generator ?? 'bench',
    limit: limitOf({
      rate: options.rate,
      busiest,
      machine: machineShare,
      generator: loaded.generatorShare,
    }),
    othersShare: othersShare(machineBefore, machineAfter, ours),
    storedAfterMs,
    ...(commitsBefore && commitsAfter && { commits: difference(commitsBefore, commitsAfter) }),
    ...(countsBefore && countsAfter && { redis: redisFigures(countsBefore, countsAfter) }),
  };
  return { run, loaded };
}

/** By the shares of one core that the busiest process and each thread of the generator used, and of all cores. */
export function limitOf(share: {
  readonly rate?: number | undefined;
  readonly busiest: number;
  readonly generator: number;
  readonly machine: number;
}): Limit {
  if (share.generator >= busy.core && share.generator > share.busiest) return 'generator';
  if (share.rate !== undefined) return 'rate';
  if (share.busiest >= busy.core) return 'service';
  return share.machine >= busy.cores ? 'machine' : 'waiting';
}

/** CPU time in µs that each kind of process used between two readings. */
export function cpuBetween(before: CpuTimes, after: CpuTimes): CpuTimes {
  const used: Partial<Record<ProcessName, number>> = {};
  for (const name of processNames) {
    const now = after[name];
    if (now !== undefined) used[name] = now - (before[name] ?? 0);
  }
  return used;
}

export function sumCpu(times: CpuTimes): number {
  return processNames.reduce((sum, name) => sum + (times[name] ?? 0), 0);
}

export function perRecord(times: CpuTimes, records: number): CpuTimes {
  return Object.fromEntries(Object.entries(times).map(([name, used]) => [name, used / records]));
}

function difference(before: Commits, after: Commits): Commits {
  return { count: after.count - before.count, records: after.records - before.records };
}

function redisFigures(before: CommandCounts, after: CommandCounts): NonNullable<Run['redis']> {
  return {
    commandsPerScript: (after.others - before.others) / (after.scripts - before.scripts),
    rewrites: after.rewrites - before.rewrites,
  };
}
