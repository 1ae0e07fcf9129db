// How long after its acknowledgement an event can be queried: single events, each known by its own property,
// are sent while a load runs, and ClickHouse is asked which of them it has. The time counts up to the answer
// that first shows the event.
//
// A question costs ClickHouse about 10 ms of CPU, so it is not asked all the time, but whenever a segment has
// left Redis, which is when the worker has read it back; what the worker does after the insert is in the time.
// Elsewhere, where Redis cannot be asked, it is asked ten times a second.

import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { shardKeys } from '../src/redis/keys.js';
import type { Deployment } from './deployment.js';
import { BenchError } from './failure.js';

export type FreshnessResult = {
  /** From the answer of the API to the answer of ClickHouse that shows the event, in ms, ascending. */
  readonly queryableAfter: Float64Array;
  /** Of the probes' own requests, in ms, ascending. */
  readonly acknowledgedAfter: Float64Array;
  /** Questions asked of ClickHouse, and the mean time of one in ms: what the measurement itself costs. */
  readonly questions: number;
  readonly questionMs: number;
};

export type Probing = {
  /** Ends the sending; settles when every event that was acknowledged could be queried. */
  stop(): Promise<FreshnessResult>;
};

const sendEveryMs = 50;
const lookEveryMs = 5;
/** Asked after this time in any case. */
const askEveryMsMax = 1_000;
const askElsewhereEveryMs = 100;
const missingMsMax = 30_000;

/**
 * Starts to send probes of the environment `appId` and to look for them. With `redis` the deployment has one
 * shard.
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
  /** The outstanding segments at the last look. */
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
  // A rejection before `stop` is told there.
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
