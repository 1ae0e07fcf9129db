// One measured run: start the clock, send the load, wait until everything is stored, stop the clock. CPU time covers all of this, including
// storing, and is divided by the number of records.

import type { CpuTimes } from '../deployment/deployment.js';
import { cpuBetween, perRecord, startMeter, sumCpu } from '../deployment/meter.js';
import { assertStored, plus, type Records, type Store, sumOf, untilCounted } from '../deployment/stored.js';

/** What a run loads and measures: the deployment, a floor or a peer. */
export type Subject = Store & {
  readonly url: string;
  cpu(): CpuTimes;
  /** The part of the CPU time spent in the kernel; absent if it is not needed. */
  systemCpu?(): CpuTimes;
  /** The commits of the deployment under test since its API started. Called while no commit is under way. */
  commits?(): Promise<Commits>;
  /** How many records of the environment are stored. Cheap enough to be called ten times per second. */
  count(appId: string): Promise<number>;
  /** Settles when no background work of an earlier run is left. */
  settle(): Promise<void>;
};

/** `records`: the number of records in these commits. */
type Commits = { readonly count: number; readonly records: number };

/**
 * What kept a run from being faster. `generator`: the generator used a full core. `connections`: it had no free connection. `rate`: the
 * requested rate was reached. `service`: a process of the service used a full core. `machine`: all cores were busy. `waiting`: none of
 * these; both sides waited for each other or for the disk.
 */
export type Limit = 'generator' | 'connections' | 'rate' | 'service' | 'machine' | 'waiting';

export type Run = Awaited<ReturnType<typeof measure>>['run'];

export type Loaded = {
  readonly requests: number;
  readonly seconds: number;
  /** The generator's CPU in µs, and as the share of one core per thread. */
  readonly generatorCpu: number;
  readonly generatorShare: number;
  /** Set if another process than this one generated the load. */
  readonly generator?: string;
  readonly acknowledged: Records;
};

type MeasureOptions<Result extends Loaded> = {
  readonly subject: Subject;
  readonly appId: string;
  /** The records that the environment had before the run. */
  readonly before: Records;
  readonly rate?: number;
  /** The run fails if no new record appears for this long; 30 s by default. */
  readonly stallMs?: number;
  /** Sends everything; settles when the last request is acknowledged. */
  readonly load: () => Promise<Result>;
};

/** From these shares on, a process, the machine or the requested rate counts as the limit of a run. */
const busy = { core: 0.8, cores: 0.95, rate: 0.95 };

/** Settles with the figures and the result of `load`. Rejects if a record was lost, duplicated or refused. */
export async function measure<Result extends Loaded>({
  subject,
  appId,
  before,
  rate,
  stallMs,
  load,
}: MeasureOptions<Result>) {
  await subject.settle();
  const commitsBefore = await subject.commits?.();
  const read = startMeter(() => subject.cpu());
  // Within the time of the meter, so that the kernel's part never exceeds the whole.
  const systemBefore = subject.systemCpu?.();

  const loaded = await load();
  const acknowledgedAt = performance.now();
  const meanwhile = read();
  const expected = plus(before, loaded.acknowledged);
  await untilCounted(() => subject.count(appId), sumOf(expected), stallMs);
  const storedAfterMs = performance.now() - acknowledgedAt;

  const systemUsed = systemBefore && cpuBetween(systemBefore, subject.systemCpu?.() ?? {});
  const { used, othersShare } = read();
  const commits = commitsBefore && (await subject.commits?.());
  await assertStored(subject, appId, expected);

  const records = sumOf(loaded.acknowledged);
  const { requests, seconds, generator, generatorCpu, generatorShare } = loaded;
  const run = {
    /** Records that were acknowledged and stored. */
    records,
    requests,
    seconds,
    recordsPerSecond: records / seconds,
    requestsPerSecond: requests / seconds,
    /** µs of CPU per record, by kind of process and in total; and the kernel's part of it. */
    cpu: perRecord(used, records),
    cpuSum: sumCpu(used) / records,
    ...(systemUsed && { systemCpu: perRecord(systemUsed, records) }),
    /** µs of CPU per record that the load generator took from the service: `wrk`, or `bench` itself. */
    generatorCpu: generatorCpu / records,
    generator: generator ?? 'bench',
    limit: limitOf({
      ofRate: rate && requests / seconds / rate,
      busiest: Math.max(...Object.values(meanwhile.used)) / 1e6 / seconds,
      machine: meanwhile.machineShare,
      generator: generatorShare,
    }),
    /** The share of the machine's CPU time that other programs used. Above 0.1 the run is noisy. */
    othersShare: othersShare(generator === undefined ? 0 : generatorCpu),
    /** From the last acknowledgement until every record was stored, in ms. */
    storedAfterMs,
    ...(commits && { commits: between(commitsBefore, commits) }),
  };
  return { run, loaded };
}

function between(before: Commits, after: Commits): Commits {
  return { count: after.count - before.count, records: after.records - before.records };
}

/** Decides what limited a run. Shares that are not known from outside the deployment are left out. */
export function limitOf(share: {
  /** The share of one core that each thread of the generator used. */
  readonly generator: number;
  /** The share of one core that the busiest process used; and of all cores, that of all processes. */
  readonly busiest?: number;
  readonly machine?: number;
  readonly ofRate?: number;
  /** Requests that found no free connection. */
  readonly unsent?: number;
}): Limit {
  const { generator, busiest = 0, machine = 0, ofRate = 0, unsent = 0 } = share;
  if (generator >= busy.core && generator > busiest) return 'generator';
  if (unsent > 0) return 'connections';
  if (ofRate >= busy.rate) return 'rate';
  if (busiest >= busy.core) return 'service';
  return machine >= busy.cores ? 'machine' : 'waiting';
}
