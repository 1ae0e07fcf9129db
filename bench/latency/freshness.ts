// How long after its acknowledgement can an event be queried? While a load runs, single events are sent, each with a
// property of its own, and ClickHouse is asked which of them it has. The time ends with the answer that first shows the
// event.
//
// A query costs ClickHouse about 10 ms of CPU. So it is not made all the time, but whenever a segment has left Redis,
// that is, when the worker has read it back; the measured time includes what the worker does after the insert. Elsewhere,
// where Redis cannot be asked, ClickHouse is asked ten times per second.

import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { shardKeys } from '../../src/redis/keys.js';
import type { Deployment } from '../deployment/deployment.js';
import { BenchError } from '../failure.js';

export type FreshnessResult = {
  /** From the API's answer to ClickHouse's answer that shows the event, in ms, ascending. */
  readonly queryableAfter: Float64Array;
  /** Of the probes' own requests, in ms, ascending. */
  readonly acknowledgedAfter: Float64Array;
  /** The number of queries to ClickHouse and the mean time of one in ms: what the measurement itself costs. */
  readonly questions: number;
  readonly questionMs: number;
};

export type Probing = {
  /** Stops sending; settles when every acknowledged event could be queried. */
  stop(): Promise<FreshnessResult>;
};

const sendEveryMs = 50;
const lookEveryMs = 5;
/** After this time ClickHouse is asked in any case. */
const askEveryMsMax = 1_000;
const askElsewhereEveryMs = 100;
const missingMsMax = 30_000;

/**
 * Starts to send probes to the environment `appId` and to query them. With `redis` the deployment must have one shard.
 */
export function startProbing(
  deployment: Pick<Deployment, 'url' | 'rows'>,
  redis: Redis | undefined,
  appId: string,
): Probing {
  const acknowledgedAt = new Map<string, number>();
  const acknowledgedAfter: number[] = [];
  const queryableAfter: number[] = [];
  const beganAt = new Date().toISOString().slice(0, 19);
  const run = randomBytes(6).toString('hex');
  let number = 0;
  let stopped = false;
  let questions = 0;
  let questionMs = 0;
  /** The segments that were outstanding at the last check. */
  let known: string[] = [];

  async function send(): Promise<void> {
    const probe = `${run}-${number++}`;
    const sentAt = performance.now();
    const reply = await fetch(`${deployment.url}/api/track`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        app_id: appId,
        event: 'Probe',
        identity: `probe-${probe}`,
        properties: { probe },
      }),
    });
    await reply.arrayBuffer();
    if (reply.status !== 200) throw new BenchError(`a probe was answered ${reply.status}`);
    const now = performance.now();
    acknowledgedAfter.push(now - sentAt);
    acknowledgedAt.set(probe, now);
  }

  async function keepSending(): Promise<void> {
    const under: Promise<void>[] = [];
    for (let dueAt = performance.now(); !stopped; dueAt += sendEveryMs) {
      under.push(send());
      await pause(Math.max(0, dueAt + sendEveryMs - performance.now()));
    }
    await Promise.all(under);
  }

  async function keepAsking(sending: Promise<void>): Promise<void> {
    let allSent = false;
    void sending.then(() => {
      allSent = true;
    });
    const seen = new Set<string>();
    let lastSeenAt = performance.now();
    while (!allSent || acknowledgedAt.size > 0) {
      const askedAt = performance.now();
      const rows = await deployment.rows<{ probe: string }>(
        `SELECT properties['probe'] AS probe FROM events
          WHERE app_id = '${appId}' AND event = 'Probe' AND time >= toDateTime64('${beganAt}', 3, 'UTC')
          SETTINGS max_threads = 1`,
      );
      const now = performance.now();
      questions += 1;
      questionMs += now - askedAt;
      for (const { probe } of rows) {
        const since = acknowledgedAt.get(probe);
        if (since === undefined || seen.has(probe)) continue;
        seen.add(probe);
        acknowledgedAt.delete(probe);
        queryableAfter.push(now - since);
        lastSeenAt = now;
      }
      if (now - lastSeenAt > missingMsMax) {
        throw new BenchError(`${acknowledgedAt.size} acknowledged probes cannot be queried after 30 s`);
      }
      await untilSegmentLeft(now + askEveryMsMax);
    }
  }

  /** Settles when a segment that was outstanding no longer is, or at `deadline`. */
  async function untilSegmentLeft(deadline: number): Promise<void> {
    if (redis === undefined) return pause(askElsewhereEveryMs);
    const outstanding = () => redis.zrange(shardKeys.segments(0), '0', '-1');
    const left = (before: string[], now: string[]) => before.some((segment) => !now.includes(segment));
    while (performance.now() < deadline) {
      const now = await outstanding();
      const before = known;
      known = now;
      if (left(before, now)) return;
      await pause(lookEveryMs);
    }
  }

  const sending = keepSending();
  const asking = keepAsking(sending);
  const both = Promise.all([sending, asking]);
  // `stop` reports a rejection that came before it.
  both.catch(() => undefined);
  return {
    stop: async () => {
      stopped = true;
      await both;
      return {
        queryableAfter: Float64Array.from(queryableAfter).sort(),
        acknowledgedAfter: Float64Array.from(acknowledgedAfter).sort(),
        questions,
        questionMs: questionMs / questions,
      };
    },
  };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
