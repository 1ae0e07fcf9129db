// The checks at the end of every fault test: the backlog is gone, everything is stored as promised, no segment is left in Redis, and no
// log contains what was sent.

import assert from 'node:assert/strict';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Cluster, Redis } from 'ioredis';
import { shardKeys } from '../../src/redis/keys.js';
import { findViolations, type StoredEvent, storedEventsQuery } from './exactly-once.js';
import {
  countOutcomes,
  createProducer,
  type Invocation,
  type Load,
  type Producer,
  type Request,
  type Settlement,
  startLoad,
  whileRunning,
} from './load.js';
import type { ApiHandle, SluiceHandle } from './services.js';
import { until } from './wait.js';

let environments = 0;

/** A producer for a new environment, where only the limits per user apply to bulk requests. */
export async function newProducer(sluice: SluiceHandle): Promise<Producer> {
  environments += 1;
  const { account_id } = sluice.bootstrap;
  const name = `Faults ${environments}`;
  const { app_id } = (await sluice.admin('environments', 'add', account_id, name)) as { app_id: string };
  await sluice.admin('environments', 'set', app_id, '--limit', 'bulk_app=none');
  return createProducer(app_id);
}

/** Settles when ClickHouse has everything that Redis accepted, and both Redis and the metrics say so. */
export async function untilDrained(
  sluice: SluiceHandle,
  redis: Redis | Cluster,
  deadlineMs = 120_000,
  shards = 1,
): Promise<void> {
  for (let shard = 0; shard < shards; shard += 1) {
    await until(async () => (await redis.zcard(shardKeys.segments(shard))) === 0, {
      deadlineMs,
      what: `no segment of shard ${shard} is outstanding`,
    });
    const [bytes, rows] = await redis.hmget(shardKeys.state(shard), 'bytes', 'rows');
    assert.deepEqual([Number(bytes), Number(rows)], [0, 0], 'the backlog counts what is outstanding');
    assert.deepEqual(await redis.hgetall(shardKeys.segmentRows(shard)), {});
    assert.deepEqual(await redis.hgetall(shardKeys.burntTokens(shard)), {});
  }
  const nodes = 'nodes' in redis ? redis.nodes('master') : [redis];
  const left = await Promise.all(nodes.map((node) => node.keys('{s*}:segment:*')));
  assert.deepEqual(left.flat(), [], 'a segment is still there that is not outstanding');
  for (const api of sluice.api.filter(({ running }) => running)) {
    await until(async () => (await readMetric(api, 'sluice_backlog_segments')) === 0, {
      deadlineMs: 30_000,
      what: `${api.name} shows an empty backlog`,
    });
  }
}

/** The sum of a metric over its labels as one API process shows it; undefined if it does not show the metric. */
export async function readMetric(
  api: Pick<ApiHandle, 'adminUrl'>,
  name: string,
): Promise<number | undefined> {
  const reply = await fetch(`${api.adminUrl}/metrics`, { signal: AbortSignal.timeout(15_000) });
  const lines = (await reply.text())
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
  if (lines.length === 0) return undefined;
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
}

/** 2 s, plus half a second because the machine may be busy. */
export const answerMsMax = 2_500;
/** The bound for requests during which the whole machine paused, beside the longest pause that this process noticed. */
const pausedAnswerMsMax = 8_000;
const pauses = monitorEventLoopDelay({ resolution: 20 });
pauses.enable();
/** Clients of a load; each has one request under way at a time. */
const clientsMax = 6;

/**
 * Asserts that every request was answered, and that refusals came within the deadline. A pause of the machine delays one request of each
 * client. So only the fastest quarter of the refusals must be in time, and only if there are at least two per client: fewer may all come
 * from the pause.
 */
export function assertAnsweredInTime(requests: readonly Request[]): void {
  for (const { outcome, code, tookMs } of requests) {
    assert.ok(tookMs <= pausedAnswerMsMax + pauses.max / 1e6, `${outcome} ${code} after ${tookMs} ms`);
    assert.ok(outcome !== 'unanswered' && outcome !== 'unexpected', `${outcome} ${code}`);
  }
  const refusedMs = requests.flatMap(({ status, tookMs }) => (status === 503 ? [tookMs] : []));
  const quickMs = refusedMs.sort((a, b) => a - b)[Math.floor(refusedMs.length / 4)] ?? 0;
  const isJudged = refusedMs.length >= 2 * clientsMax;
  assert.ok(
    !isJudged || quickMs <= answerMsMax,
    `three quarters of ${refusedMs.length} took ${quickMs} ms or more`,
  );
}

/** How many outcomes may stay unknown, since the machine may pause once or twice. */
export const unknownMax = 2 * clientsMax;

export type CheckOptions = {
  /** With fewer acknowledged requests the test would prove nothing, so it fails; 100 by default. */
  readonly acknowledgedMin?: number;
  /** Whether requests without an answer must not be stored, since no API process can have accepted them. */
  readonly unansweredAbsent?: boolean;
};

/** Asserts that ClickHouse holds what the producer was promised, and that no log contains what it sent. */
export async function assertKept(
  sluice: SluiceHandle,
  producer: Producer,
  { acknowledgedMin = 100, unansweredAbsent = false }: CheckOptions = {},
): Promise<void> {
  const rows = await sluice.rows<StoredEvent>(storedEventsQuery(producer.appId));
  const history = producer
    .readHistory()
    .map((request) => (unansweredAbsent && request.outcome === 'unanswered' ? asAbsent(request) : request));
  const violations = findViolations(history, rows);
  const counts = countOutcomes(producer.settled);
  const summary = `${rows.length} rows, requests: ${JSON.stringify(counts)}`;
  assert.deepEqual(violations.slice(0, 5), [], `${violations.length} violations; ${summary}`);
  assert.ok(
    counts.acknowledged >= acknowledgedMin,
    `too few acknowledged requests to prove anything; ${summary}`,
  );
  assert.equal(counts.unexpected, 0, summary);
  for (const child of [...sluice.api, ...sluice.workers, sluice.redis, ...sluice.clickhouses]) {
    const at = child.output().indexOf(producer.mark);
    assert.equal(at, -1, `${child.name} logs what was sent: ${child.output().slice(at - 300, at + 100)}`);
  }
}

/** Settles when everything is stored; asserts that it is what the producer was promised, and closes the producer. */
export async function assertStoredOnce(
  sluice: SluiceHandle,
  redis: Redis,
  producer: Producer,
  options: CheckOptions = {},
): Promise<void> {
  await untilDrained(sluice, redis);
  await assertKept(sluice, producer, options);
  producer.close();
}

/** Runs load while `fault` happens, and then checks every promise; settles with the closed producer of the load. */
export async function underLoad(
  sluice: SluiceHandle,
  redis: Redis,
  fault: (load: Load) => Promise<void>,
): Promise<Producer> {
  const producer = await newProducer(sluice);
  const load = startLoad(producer, { targets: sluice.api.map(({ baseUrl }) => baseUrl) });
  await whileRunning(load, async () => {
    await load.more(100);
    await fault(load);
    await load.more(100);
  });
  await assertStoredOnce(sluice, redis, producer);
  return producer;
}

function asAbsent(request: Invocation & Partial<Settlement>): Invocation & Partial<Settlement> {
  return { ...request, outcome: 'overloaded' };
}
