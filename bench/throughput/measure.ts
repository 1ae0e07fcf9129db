// One measured run: warm-up, start of the clock, load, wait until everything is stored, end of the clock. CPU time is
// counted over all of it, including the storing, and divided by the records.

import type { Redis } from 'ioredis';
import {
  type CommandStats,
  commandStatsBetween,
  countRewrites,
  readCommandStats,
} from '../deployment/command-stats.js';
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

export type Run = {
  /** Acknowledged and stored. */
  readonly records: number;
  readonly requests: number;
  readonly seconds: number;
  readonly recordsPerSecond: number;
  readonly requestsPerSecond: number;
  /** µs of CPU per record, of each kind of process and in total; absent for processes elsewhere. */
  readonly cpu: CpuTimes;
  readonly cpuSum?: number;
  /** The part of `cpu` that the kernel used. */
  readonly systemCpu?: CpuTimes;
  /** µs of CPU per record of the load generator, which the service lacks. */
  readonly generatorCpu: number;
  /** The share of the machine's CPU time that neither the subject nor the generator used. Above 0.1 the run is noisy. */
  readonly othersShare?: number;
  /** From the last acknowledgement until every record was stored. */
  readonly storedAfterMs: number;
  readonly commits?: Commits;
  readonly redis?: {
    /** Script calls, of which each commit is one, and their µs per record. */
    readonly evalshaCalls: number;
    readonly evalshaCpu: number;
    /** Rewrites of the append-only file that began meanwhile; Redis's CPU includes them. */
    readonly rewrites: number;
    /** The five commands that took Redis longest. */
    readonly commands: CommandStats;
  };
};

export type Loaded = {
  readonly seconds: number;
  /** In µs. */
  readonly generatorCpu: number;
  /** The part of it that processes other than this one used; 0 by default. */
  readonly generatorCpuOutside?: number;
  /** Acknowledged records by table. */
  readonly acknowledged: Records;
};

export type MeasureOptions<Result extends Loaded> = {
  readonly subject: Subject;
  /** Of the deployment under test, for its statistics. */
  readonly redis?: Redis | undefined;
  readonly appId: string;
  readonly requests: number;
  /** What the environment held before. */
  readonly before: Records;
  /** The run fails if no new record appears for this long; 30 s by default. */
  readonly stallMs?: number;
  /** Sends everything; settles when the last request is acknowledged. */
  readonly load: () => Promise<Result>;
};

const commandsKept = 5;

/** Settles with the figures and what `load` returned; rejects if something was lost, doubled or refused. */
export async function measure<Result extends Loaded>(
  options: MeasureOptions<Result>,
): Promise<{ run: Run; loaded: Result }> {
  const { subject, redis, appId, requests, before } = options;
  await subject.settle();
  const statsBefore = redis === undefined ? undefined : await readStats(redis);
  const commitsBefore = await subject.commits?.();
  const systemBefore = subject.systemCpu?.();
  const cpuBefore = subject.cpu();
  const ownBefore = process.cpuUsage();
  const machineBefore = machineMicroseconds();

  const loaded = await options.load();
  const acknowledgedAt = performance.now();
  const expected = plus(before, loaded.acknowledged);
  await untilCounted(() => subject.count(appId), sumOf(expected), options.stallMs);
  const storedAfterMs = performance.now() - acknowledgedAt;

  const machineAfter = machineMicroseconds();
  const own = process.cpuUsage(ownBefore);
  const used = cpuBetween(cpuBefore, subject.cpu());
  const systemUsed =
    systemBefore === undefined ? undefined : cpuBetween(systemBefore, subject.systemCpu?.() ?? {});
  const commitsAfter = await subject.commits?.();
  const statsAfter = redis === undefined ? undefined : await readStats(redis);
  await assertStored(subject, appId, expected);

  const records = sumOf(loaded.acknowledged);
  const sum = sumCpu(used);
  const here = Object.keys(used).length > 0;
  const ours = sum + own.user + own.system + (loaded.generatorCpuOutside ?? 0);
  const run: Run = {
    records,
    requests,
    seconds: loaded.seconds,
    recordsPerSecond: records / loaded.seconds,
    requestsPerSecond: requests / loaded.seconds,
    cpu: perRecord(used, records),
    ...(here ? { cpuSum: sum / records } : {}),
    ...(systemUsed === undefined ? {} : { systemCpu: perRecord(systemUsed, records) }),
    generatorCpu: loaded.generatorCpu / records,
    ...(here ? { othersShare: othersShare(machineBefore, machineAfter, ours) } : {}),
    storedAfterMs,
    ...(commitsBefore === undefined || commitsAfter === undefined
      ? {}
      : {
          commits: {
            count: commitsAfter.count - commitsBefore.count,
            records: commitsAfter.records - commitsBefore.records,
          },
        }),
    ...(statsBefore === undefined || statsAfter === undefined
      ? {}
      : { redis: redisFigures(statsBefore, statsAfter, records) }),
  };
  return { run, loaded };
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

type RedisStats = { readonly commands: CommandStats; readonly rewrites: number };

async function readStats(redis: Redis): Promise<RedisStats> {
  return { commands: await readCommandStats(redis), rewrites: await countRewrites(redis) };
}

function redisFigures(before: RedisStats, after: RedisStats, records: number): NonNullable<Run['redis']> {
  const commands = commandStatsBetween(before.commands, after.commands);
  const evalsha = commands.evalsha ?? { calls: 0, microseconds: 0 };
  return {
    evalshaCalls: evalsha.calls,
    evalshaCpu: evalsha.microseconds / records,
    rewrites: after.rewrites - before.rewrites,
    commands: Object.fromEntries(Object.entries(commands).slice(0, commandsKept)),
  };
}
