// One measured run: start the clock, send the load, wait until everything is stored, stop the clock. CPU time covers all of
// it, storing included, and is divided by the records.

import type { CpuTimes } from '../deployment/deployment.js';
import { cpuBetween, perRecord, startMeter, sumCpu } from '../deployment/meter.js';
import { assertStored, plus, type Records, type Store, sumOf, untilCounted } from '../deployment/stored.js';

/** What a run loads and measures: the deployment, a floor or a peer. */
export type Subject = Store & {
  readonly url: string;
  cpu(): CpuTimes;
  /** The kernel's part of it; absent if not needed. */
  systemCpu?(): CpuTimes;
  /** Of the deployment under test, since its API started; called while no commit is under way. */
  commits?(): Promise<Commits>;
  /** How many records of the environment are stored; cheap enough to call ten times per second. */
  count(appId: string): Promise<number>;
  /** Settles when no background work of an earlier run is left. */
  settle(): Promise<void>;
};

/** `records`: those in the commits. */
type Commits = { readonly count: number; readonly records: number };

/**
 * What kept a run from being faster: the generator used up its core, or had no free connection; the requested rate, which was
 * reached; a process of the service used up its core; all cores were busy; or none of these, because both waited for each
 * other or for the disk.
 */
export type Limit = 'generator' | 'connections' | 'rate' | 'service' | 'machine' | 'waiting';

export type Run = Awaited<ReturnType<typeof measure>>['run'];

export type Loaded = {
  readonly requests: number;
  readonly seconds: number;
  /** In µs, and as the share of one core per thread. */
  readonly generatorCpu: number;
  readonly generatorShare: number;
  /** If another process than this one generated the load. */
  readonly generator?: string;
  readonly acknowledged: Records;
};

type MeasureOptions<Result extends Loaded> = {
  readonly subject: Subject;
  readonly appId: string;
  /** What the environment held before. */
  readonly before: Records;
  readonly rate?: number;
  /** The run fails if no new record appears for this long; 30 s by default. */
  readonly stallMs?: number;
  /** Sends everything; settles when the last request is acknowledged. */
  readonly load: () => Promise<Result>;
};

/** From these shares on a process, the machine or the requested rate limits a run. */
const busy = { core: 0.8, cores: 0.95, rate: 0.95 };

/** Settles with the figures and the result of `load`; rejects if a record was lost, doubled or refused. */
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
  // Within the time of the meter, so that the kernel's part is never more than the whole.
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
    /** Acknowledged and stored. */
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
    /** From the last acknowledgement until every record was stored. */
    storedAfterMs,
    ...(commits && { commits: between(commitsBefore, commits) }),
  };
  return { run, loaded };
}

function between(before: Commits, after: Commits): Commits {
  return { count: after.count - before.count, records: after.records - before.records };
}

/** What is not known from outside the deployment is left out. */
export function limitOf(share: {
  /** Of one core, each thread of the generator. */
  readonly generator: number;
  /** Of one core, the busiest process; and of all cores, everybody. */
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
