// One measured run: warm-up, clock on, load, until everything is stored, clock off. CPU time is counted over all
// of it, the store's share included, and divided by the records.

import type { Redis } from 'ioredis';
import { type CommandStats, commandStatsBetween, countRewrites, readCommandStats } from './command-stats.js';
import { type CpuTimes, type ProcessName, processNames } from './deployment.js';
import { machineMicroseconds, othersShare } from './processes.js';
import { assertStored, plus, type Records, type Store, sumOf, untilCounted } from './stored.js';

/** What takes load and is measured: the deployment, or what it is compared with. */
export type Subject = Store & {
  readonly url: string;
  cpu(): CpuTimes;
  /** Records of the environment that are stored, cheap enough to be asked ten times a second. */
  count(appId: string): Promise<number>;
  /** Settles when it does nothing in the background that an earlier run caused. */
  settle(): Promise<void>;
};

export type Run = {
  /** Acknowledged and stored. */
  readonly records: number;
  readonly requests: number;
  readonly seconds: number;
  readonly recordsPerSecond: number;
  readonly requestsPerSecond: number;
  /** µs of CPU a record, of each kind of process and of all together; absent of what runs elsewhere. */
  readonly cpu: CpuTimes;
  readonly cpuSum?: number;
  /** µs of CPU a record of the load generator, which takes them from the service. */
  readonly generatorCpu: number;
  /** Of the machine's CPU time, what neither the subject nor the generator used: above 0.1 the run is noisy. */
  readonly othersShare?: number;
  /** From the last acknowledgement until every record was stored. */
  readonly storedAfterMs: number;
  readonly redis?: {
    /** Script calls, of which each commit is one, and the µs of them a record. */
    readonly evalshaCalls: number;
    readonly evalshaCpu: number;
    /** Rewrites of the append-only file that began meanwhile; their CPU is in Redis's. */
    readonly rewrites: number;
    /** The five that took Redis longest. */
    readonly commands: CommandStats;
  };
};

export type Loaded = {
  readonly seconds: number;
  readonly generatorCpu: number;
  /** Acknowledged, by table. */
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
  /** Without a new record for so long the run fails; 30 s unless told. */
  readonly stallMs?: number;
  /** Sends all of it; settles when the last request is acknowledged. */
  readonly load: () => Promise<Result>;
};

const commandsKept = 5;

/** Settles with the figures and what `load` returned; rejects when something was lost, doubled or refused. */
export async function measure<Result extends Loaded>(
  options: MeasureOptions<Result>,
): Promise<{ run: Run; loaded: Result }> {
  const { subject, redis, appId, requests, before } = options;
  await subject.settle();
  const statsBefore = redis === undefined ? undefined : await readStats(redis);
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
  const statsAfter = redis === undefined ? undefined : await readStats(redis);
  await assertStored(subject, appId, expected);

  const records = sumOf(loaded.acknowledged);
  const sum = sumCpu(used);
  const here = Object.keys(used).length > 0;
  const run: Run = {
    records,
    requests,
    seconds: loaded.seconds,
    recordsPerSecond: records / loaded.seconds,
    requestsPerSecond: requests / loaded.seconds,
    cpu: perRecord(used, records),
    ...(here ? { cpuSum: sum / records } : {}),
    generatorCpu: loaded.generatorCpu / records,
    ...(here ? { othersShare: othersShare(machineBefore, machineAfter, sum + own.user + own.system) } : {}),
    storedAfterMs,
    ...(statsBefore === undefined || statsAfter === undefined
      ? {}
      : { redis: redisFigures(statsBefore, statsAfter, records) }),
  };
  return { run, loaded };
}

/** CPU time in µs that each kind of process used between two looks. */
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
