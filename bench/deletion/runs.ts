// The runs of the deletion scenarios. Each run submits, polls until the status is complete, measures, and compares the tables with their
// earlier contents.

import { setTimeout as pause } from 'node:timers/promises';
import type { Deployment } from '../deployment/deployment.js';
import { countFilesWith, countReplacedParts, readParts } from '../deployment/disk.js';
import { startMeter, sumCpu } from '../deployment/meter.js';
import { mergesEnded } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { median } from '../figures.js';
import type { DeletionApi } from './api.js';
import type { Population, User } from './population.js';

export type DeletionContext = {
  readonly deployment: Deployment;
  readonly api: DeletionApi;
  readonly population: Population;
  readonly markers: ReadonlyMap<number, string>;
};

export type BulkRun = Awaited<ReturnType<typeof runBulk>>;
export type OneRun = Awaited<ReturnType<typeof runOne>>;
export type ManyRun = Awaited<ReturnType<typeof runMany>>;

const secondsMax = 300;
const tracesSecondsMax = 180;
const traceLookEveryMs = 1_000;
/** More than the least distance between two rounds. Runs wait this long before they start, so that they do not measure that distance. */
const roundEveryMs = 4_500;
const manyEveryMs = 55;
const manyPollEveryMs = 10;
/** Keeps polls below the number that a token is allowed per second. */
const pollEveryMs = 15;

/** Events that arrive before and during a deletion. Other work on the machine must wait until `completed`. */
type Beside = { begin(): Promise<void>; completed(): void; end(): Promise<void> };

/** Deletes customers in one request; one of them must have a marker. */
export async function runBulk(
  { deployment, api, population, markers }: DeletionContext,
  customers: readonly number[],
  beside?: Beside,
) {
  const users = customers.map((customer) => population.nameOf(customer));
  const text = customers.flatMap((customer) => markers.get(customer)?.split('@')[0] ?? [])[0];
  if (text === undefined) throw new BenchError('no customer of the run has a marker');
  const { clickhouse, redis } = deployment.sluice;
  const isGoneFrom = async (folder: string) => (await countFilesWith(text, folder)) === 0;
  if (await isGoneFrom(clickhouse.dir)) throw new BenchError('the marker is not found before the deletion');

  await mergesEnded(deployment);
  return population.comparing(users, async (rows) => {
    await beside?.begin();
    const cpuSince = startCpu(deployment);
    const sentAt = performance.now();
    const requestId = await api.submit(users);
    /** This and `completeSeconds` count from when the submission was sent. */
    const answeredSeconds = secondsSince(sentAt);
    await api.untilComplete(requestId, secondsMax);
    const completeSeconds = secondsSince(sentAt);
    beside?.completed();
    const cpu = cpuSince();
    const completeAt = performance.now();
    const { found = [] } = await api.show(requestId);
    if (found.reduce((sum, of) => sum + of.rows, 0) !== rows) {
      throw new BenchError('the evidence counts other rows than the tables held');
    }
    /** Both count from `complete` to the start of the first search that finds nothing. */
    const [partsGoneSeconds, redisRewrittenSeconds] = await Promise.all([
      untilGone(completeAt, async () => {
        const replaced = await countReplacedParts(deployment, 'deletion_targets');
        return replaced === 0 && (await isGoneFrom(clickhouse.dir));
      }),
      untilGone(completeAt, () => isGoneFrom(redis.dir)),
    ]);
    await beside?.end();
    const times = { answeredSeconds, completeSeconds, partsGoneSeconds, redisRewrittenSeconds };
    // Rows: events, user property records and identifications of the targets.
    return { targets: customers.length, rows, ...times, cpu };
  });
}

/** Deletes one user while the service is otherwise idle. */
export async function runOne({ deployment, api, population }: DeletionContext, user: User) {
  await mergesEnded(deployment);
  return population.comparing([user], async (rows) => {
    await pause(roundEveryMs);
    const before = await readParts(deployment, 'stored_events');
    const cpuSince = startCpu(deployment);
    const sentAt = performance.now();
    const requestId = await api.submit([user]);
    await api.untilComplete(requestId, secondsMax);
    const completeSeconds = secondsSince(sentAt);
    const cpu = cpuSince();
    const { submitted_at, hidden_at = '' } = await api.show(requestId);
    const after = await readParts(deployment, 'stored_events');
    const rewritten = [...after].filter(([blocks, part]) => {
      const old = before.get(blocks);
      if (old === undefined) throw new BenchError('parts were merged during the run');
      return old.inode !== part.inode;
    });
    return {
      rows,
      hiddenSeconds: (Date.parse(hidden_at) - Date.parse(submitted_at)) / 1_000,
      completeSeconds,
      parts: after.size,
      partsRewritten: rewritten.length,
      bytesWritten: newBytes(before, after),
      cpu,
    };
  });
}

type Parts = Awaited<ReturnType<typeof readParts>>;

/** The bytes of files that did not exist before. (A mask rewrites a small file and hard-links the others.) */
function newBytes(before: Parts, after: Parts): number {
  const old = new Set([...before.values()].flatMap(({ bytes }) => [...bytes.keys()]));
  const files = [...after.values()].flatMap(({ bytes }) => [...bytes]);
  return files.reduce((sum, [inode, size]) => sum + (old.has(inode) ? 0 : size), 0);
}

/** Submits one request per customer, evenly distributed over a minute, and polls each until it is complete. */
export async function runMany(
  { deployment, api, population }: DeletionContext,
  customers: readonly number[],
) {
  const users = customers.map((customer) => population.nameOf(customer));
  await mergesEnded(deployment);
  return population.comparing(users, async () => {
    await pause(roundEveryMs);
    const startedAt = performance.now();
    const pending = new Map<string, number>();
    const waited: number[] = [];
    let submitting = true;

    async function submitAll(): Promise<number> {
      for (const [index, user] of users.entries()) {
        await pause(Math.max(0, startedAt + index * manyEveryMs - performance.now()));
        const sentAt = performance.now();
        pending.set(await api.submit([user]), sentAt);
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
          // Rounds take the oldest requests first, so the requests after a pending one are mostly pending too.
          if (!(await api.isComplete(requestId))) break;
          waited.push(secondsSince(sentAt));
          pending.delete(requestId);
        }
      }
    }

    const [submittedSeconds] = await Promise.all([submitAll(), pollAll()]);
    const completeSeconds = secondsSince(startedAt);
    return {
      requests: users.length,
      /** From the first submission to the answer to the last one, and until all were complete. */
      submittedSeconds,
      completeSeconds,
      /** Over the requests: each from its submission until it was complete. */
      medianSeconds: median(waited),
      longestSeconds: Math.max(...waited),
      mutationsAMinute: await countMutations(deployment, completeSeconds),
    };
  });
}

/** For each table, the highest number of mutations that began within any 60 s. */
async function countMutations({ rows }: Deployment, seconds: number): Promise<Record<string, number>> {
  const found = await rows<{ table: string; at: number }>(
    `SELECT DISTINCT table, mutation_id, toUnixTimestamp(create_time) AS at FROM system.mutations
      WHERE database = currentDatabase() AND create_time >= now() - ${Math.ceil(seconds) + 1} ORDER BY at`,
  );
  const most: Record<string, number> = {};
  for (const { table, at: from } of found) {
    const within = found.filter(({ table: other, at }) => other === table && at >= from && at < from + 60);
    most[table] = Math.max(most[table] ?? 0, within.length);
  }
  return most;
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

/**
 * The returned function reads the CPU seconds that the deployment's processes have used since the start, and the share of all cores that
 * other programs used. A share of 0.5 about doubles the times.
 */
function startCpu({ cpu }: Deployment) {
  const read = startMeter(cpu);
  return () => {
    const { used, othersShare } = read();
    return { seconds: sumCpu(used) / 1e6, othersShare: othersShare() };
  };
}

function secondsSince(ms: number): number {
  return (performance.now() - ms) / 1000;
}
