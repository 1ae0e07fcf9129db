// What does a backlog take in Redis? Segments of many sizes, sealed as they are while ClickHouse is away: from single
// events at several rates, and from bulk loads that fill segments.

import { Redis } from 'ioredis';
import { atPort } from '../../harness/clickhouse.js';
import { startClickHouse, startTcpProxy } from '../../harness/services.js';
import { startDeployment } from '../deployment/deployment.js';
import { assertStored, countRecords, untilCounted } from '../deployment/stored.js';
import { sendClosedLoop } from '../load/closed-loop.js';
import { bulkBodies, singleBodies } from '../load/events.js';
import { startOpenLoop } from '../load/open-loop.js';
import type { Options } from '../options.js';
import type { Progress } from '../progress.js';
import { readSegments, type SegmentMemory, untilSealed, usedMemory } from './redis-memory.js';

export type SegmentsResult = {
  readonly events: number;
  readonly segments: readonly SegmentMemory[];
  /** What Redis allocated in addition, in total, per event. */
  readonly redisBytesPerEvent: number;
};

const rates = [500, 1000, 2000, 5000];
const secondsEach = 2;
const connections = 64;
const bulk = { connections: 4, requests: 200, events: 500 };

/** Rejects if what was acknowledged while ClickHouse was away is not stored afterwards. */
export async function runSegments(options: Options, progress: Progress): Promise<SegmentsResult> {
  const clickhouse = await startClickHouse();
  const proxy = await startTcpProxy({ port: clickhouse.port });
  const workerEnv = { CLICKHOUSE_URL: atPort(clickhouse.testerUrl, proxy.port) };
  const deployment = await startDeployment({ env: options.env, workerEnv, clickhouse });
  const redis = new Redis(deployment.redisUrl);
  try {
    const { url } = deployment;
    const [appId = ''] = await deployment.addEnvironments(1, 'none');
    proxy.cut();
    await untilSealed(redis, 0);
    const before = await usedMemory(redis);
    let events = 0;
    for (const ratePerSecond of rates) {
      const requests = ratePerSecond * secondsEach;
      const bodies = singleBodies(requests, { appId, first: events });
      const load = await startOpenLoop(
        { url, bodies, ratePerSecond, requests, connections },
        () => undefined,
      );
      await load.ended;
      events += requests;
      await untilSealed(redis, 0);
      progress.say(`segments: ${requests} events at ${ratePerSecond} per second`);
    }
    const bodies = Array.from({ length: bulk.connections }, (_, connection) =>
      bulkBodies(bulk.requests / bulk.connections, bulk.events, { appId, first: connection * 100_000 }),
    );
    await sendClosedLoop({ url, bodies, requests: bulk.requests });
    events += bulk.requests * bulk.events;
    await untilSealed(redis, 0);
    const segments = await readSegments(redis, 0);
    const redisBytesPerEvent = ((await usedMemory(redis)) - before) / events;
    progress.say(`segments: ${segments.length} hold ${events} events; ClickHouse is back`);
    proxy.pass();
    await untilCounted(() => countRecords(deployment, appId), events);
    await assertStored(deployment, appId, { events });
    return { events, segments, redisBytesPerEvent };
  } finally {
    redis.disconnect();
    await deployment.stop();
    await proxy.close();
    await clickhouse.remove();
  }
}
