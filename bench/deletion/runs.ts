// The runs of the deletion scenarios. Each submits, polls until the status is complete, measures, and compares the tables
// with their contents before.

import { setTimeout as pause } from 'node:timers/promises';
import type { DeletionRequest } from '../../src/deletion/request.js';
import type { Deployment } from '../deployment/deployment.js';
import { countFilesWith, countReplacedParts, readParts } from '../deployment/disk.js';
import { startMeter, sumCpu } from '../deployment/meter.js';
import { mergesEnded } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { median } from '../figures.js';
import type { DeletionApi } from './api.js';
import { assertOnlyTargetsGone, type Population, type User } from './population.js';

export type DeletionContext = {
  readonly deployment: Deployment;
  readonly api: DeletionApi;
  readonly population: Population;
  readonly markers: ReadonlyMap<number, string>;
};

/**
 * Until `complete`: CPU seconds of the deployment's processes, and the share of all cores that other programs used. A share
 * of 0.5 about doubles the times.
 */
type Cpu = { readonly seconds: number; readonly othersShare: number };

export type BulkRun = {
  readonly targets: number;
  /** Events, user property records and identifications of the targets. */
  readonly rows: number;
  /** From the moment the submission was sent. */
  readonly answeredSeconds: number;
  readonly completeSeconds: number;
  /** From `complete` to the start of the first search that found nothing. */
  readonly partsGoneSeconds: number;
  readonly redisRewrittenSeconds: number;
  readonly cpu: Cpu;
};

export type OneRun = {
  readonly rows: number;
  readonly completeSeconds: number;
  readonly parts: number;
  readonly partsRewritten: number;
  readonly rowsRewritten: number;
  readonly cpu: Cpu;
};

export type ManyRun = {
  readonly requests: number;
  /** From the first submission to the answer of the last one, and until all were complete. */
  readonly submittedSeconds: number;
  readonly completeSeconds: number;
  /** Over the requests, each from its submission until it was complete. */
  readonly medianSeconds: number;
  readonly longestSeconds: number;
  readonly mutations: Readonly<Record<string, number>>;
  /** For each table, the most mutations that began within any 60 s. */
  readonly mutationsAMinute: Readonly<Record<string, number>>;
};

const secondsMax = 300;
const tracesSecondsMax = 180;
const traceLookEveryMs = 1_000;
/** Rounds start at least this far apart; runs wait first, so that they do not measure this pause. */
const roundEveryMs = 4_500;
const manyEveryMs = 55;
const manyPollEveryMs = 10;
/** As many polls per second as a token may make. */
const pollEveryMs = 15;

/** Events that come meanwhile. */
export type Ingestion = { submitted(): void; completed(): void; end(): Promise<void> };

/**
 * Deletes customers in one request; one of them must have a marker. `begin` starts an ingestion just before the submission:
 * whatever the bench does itself that takes the machine's time is done by then, or comes after `completed`.
 */
export async function runBulk(
  { deployment, api, population, markers }: DeletionContext,
  customers: readonly number[],
  begin?: () => Promise<Ingestion>,
): Promise<BulkRun> {
  const users = customers.map((customer) => population.nameOf(customer));
  const text = customers.flatMap((customer) => markers.get(customer)?.split('@')[0] ?? [])[0];
  if (text === undefined) throw new BenchError('no customer of the run has a marker');
  const { clickhouse } = deployment.own.sluice;
  const isGoneFrom = async (folder: string) => (await countFilesWith(text, folder)) === 0;
  if (await isGoneFrom(clickhouse.dir)) throw new BenchError('the marker is not found before the deletion');

  await mergesEnded(deployment);
  return comparing(population, users, async (rows) => {
    const ingestion = await begin?.();
    const cpuSince = startCpu(deployment);
    ingestion?.submitted();
    const sentAt = performance.now();
    const requestId = await api.submit(users);
    const answeredSeconds = secondsSince(sentAt);
    await api.untilComplete(requestId, secondsMax);
    const completeSeconds = secondsSince(sentAt);
    ingestion?.completed();
    const cpu = cpuSince();
    const completeAt = performance.now();
    if (rowsFound(await api.show(requestId)) !== rows) {
      throw new BenchError('the evidence counts other rows than the tables held');
    }

    const [partsGoneSeconds, redisRewrittenSeconds] = await Promise.all([
      untilGone(completeAt, async () => {
        const replaced = await countReplacedParts(deployment, 'deletion_targets');
        return replaced === 0 && (await isGoneFrom(clickhouse.dir));
      }),
      untilGone(completeAt, () => isGoneFrom(deployment.own.redis.dir)),
    ]);
    await ingestion?.end();
    return {
      targets: customers.length,
      rows,
      answeredSeconds,
      completeSeconds,
      partsGoneSeconds,
      redisRewrittenSeconds,
      cpu,
    };
  });
}

/** Deletes one user while the service is idle otherwise. */
export async function runOne({ deployment, api, population }: DeletionContext, user: User): Promise<OneRun> {
  await mergesEnded(deployment);
  return comparing(population, [user], async (rows) => {
    await pause(roundEveryMs);
    const before = await readParts(deployment, 'stored_events');
    const cpuSince = startCpu(deployment);
    const sentAt = performance.now();
    await api.untilComplete(await api.submit([user]), secondsMax);
    const completeSeconds = secondsSince(sentAt);
    const cpu = cpuSince();
    const after = await readParts(deployment, 'stored_events');
    const rewritten = [...after].filter(([blocks, part]) => {
      const old = before.get(blocks);
      if (old === undefined) throw new BenchError('parts were merged during the run');
      return old.inode !== part.inode;
    });
    return {
      rows,
      completeSeconds,
      parts: after.size,
      partsRewritten: rewritten.length,
      rowsRewritten: rewritten.reduce((sum, [, part]) => sum + part.rows, 0),
      cpu,
    };
  });
}

/** Submits one request per customer, evenly within a minute, and polls each until it is complete. */
export async function runMany(
  { deployment, api, population }: DeletionContext,
  customers: readonly number[],
): Promise<ManyRun> {
  const users = customers.map((customer) => population.nameOf(customer));
  await mergesEnded(deployment);
  return comparing(population, users, async () => {
    await pause(roundEveryMs);
    const startedAt = performance.now();
    const pending = new Map<string, number>();
    const requestIds: string[] = [];
    const waited: number[] = [];
    let submitting = true;

    async function submitAll(): Promise<number> {
      for (const [index, user] of users.entries()) {
        await pause(Math.max(0, startedAt + index * manyEveryMs - performance.now()));
        const sentAt = performance.now();
        const requestId = await api.submit([user]);
        requestIds.push(requestId);
        pending.set(requestId, sentAt);
      }
      submitting = false;
      return secondsSince(startedAt);
    }

    async function pollAll(): Promise<void> {
      while (submitting || pending.size > 0) {
        if (secondsSince(startedAt) > secondsMax) throw new BenchError(`${pending.size} are not complete`);
        await pause(manyPollEveryMs);
        for (const [requestId, sentAt] of [...pending]) {
          await pause(pollEveryMs);
          // Rounds take the oldest first, so requests after a pending one are mostly pending too.
          if (!(await api.isComplete(requestId))) break;
          waited.push(secondsSince(sentAt));
          pending.delete(requestId);
        }
      }
    }

    const [submittedSeconds] = await Promise.all([submitAll(), pollAll()]);
    const completeSeconds = secondsSince(startedAt);
    const { mutations, mutationsAMinute } = await countMutations();
    return {
      requests: users.length,
      submittedSeconds,
      completeSeconds,
      medianSeconds: median(waited),
      longestSeconds: Math.max(...waited),
      mutations,
      mutationsAMinute,
    };

    async function countMutations() {
      const sinceSeconds = Math.ceil(completeSeconds) + 1;
      const found = await deployment.rows<{ table: string; at: number }>(
        `SELECT table, toUnixTimestamp(create_time) AS at FROM system.mutations
          WHERE database = currentDatabase() AND create_time >= now() - ${sinceSeconds} ORDER BY at`,
      );
      const byTable = new Map<string, number[]>();
      for (const { table, at } of found) byTable.set(table, [...(byTable.get(table) ?? []), Number(at)]);
      const of = (value: (times: number[]) => number) =>
        Object.fromEntries([...byTable].map(([table, times]) => [table, value(times)]));
      return {
        mutations: of((times) => times.length),
        mutationsAMinute: of((times) =>
          Math.max(...times.map((from) => times.filter((at) => at >= from && at < from + 60).length)),
        ),
      };
    }
  });
}

/** Compares the tables before and after `work`, which gets the number of the targets' rows. */
async function comparing<Result>(
  population: Population,
  users: readonly User[],
  work: (rows: number) => Promise<Result>,
): Promise<Result> {
  await population.noteTargets(users);
  const [before, targets] = [await population.all(), await population.targets()];
  const result = await work([...targets.values()].reduce((sum, { rows }) => sum + rows, 0));
  population.changed();
  const [after, left] = [await population.all(), await population.targets()];
  assertOnlyTargetsGone(before, targets, after, left);
  return result;
}

/** Seconds from `sinceMs` to the start of a search that found nothing. */
async function untilGone(sinceMs: number, isGone: () => Promise<boolean>): Promise<number> {
  for (;;) {
    const at = secondsSince(sinceMs);
    if (await isGone()) return at;
    if (at > tracesSecondsMax) throw new BenchError(`traces are left after ${tracesSecondsMax} s`);
    await pause(traceLookEveryMs);
  }
}

function rowsFound(request: DeletionRequest): number {
  return (request.found ?? []).reduce((sum, { rows }) => sum + rows, 0);
}

/** The returned function reads what was used since. */
function startCpu({ cpu }: Deployment): () => Cpu {
  const read = startMeter(cpu);
  return () => {
    const { used, othersShare } = read();
    return { seconds: sumCpu(used) / 1e6, othersShare: othersShare() };
  };
}

function secondsSince(ms: number): number {
  return (performance.now() - ms) / 1000;
}
