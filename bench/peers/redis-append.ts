// The floor of acknowledging: Redis alone, the same bytes appended to strings, pipelined as many at a time as a
// commit carries, the file synced before every answer. A string is left when it is as long as a segment gets.

import { Redis } from 'ioredis';
import { type RedisHandle, startRedis } from '../../test/support/services.js';
import { BenchError } from '../failure.js';
import { cpuBetween, perRecord, type Run, sumCpu } from '../measure.js';
import { cpuMicroseconds, machineMicroseconds, othersShare } from '../processes.js';
import { makeSegment } from './segments-of-rows.js';

export type AppendOptions = {
  readonly redis: RedisHandle;
  readonly appId: string;
  /** Rows that one command appends. */
  readonly rowsPerCommand: number;
  /** Commands that are sent together. */
  readonly commandsPerPipeline: number;
  /** About how long. */
  readonly seconds: number;
};

const segmentRows = 16_000;
/** 1 GB in Redis. */
const segmentsMax = 250;

/** A Redis with the deployment's configuration, and nobody else in it. */
export function startFloorRedis(): Promise<RedisHandle> {
  return startRedis({ appendfsync: 'always', maxmemory: 6 * 1024 ** 3 });
}

/** Appends for a while; settles when Redis has answered the last, and its strings are as long as they should be. */
export async function runAppend(options: AppendOptions): Promise<Run> {
  const { redis, appId, rowsPerCommand, commandsPerPipeline } = options;
  const client = new Redis(redis.url);
  // One segment's bytes over and over: they are the same bytes, and memory is short.
  const { commits } = makeSegment(appId, segmentRows, rowsPerCommand, 0, Date.now());
  const buffers = commits.map((text) => Buffer.from(text));
  const send = async (prefix: string, count: number) => {
    for (let segment = 0; segment < count; segment += 1) {
      for (let from = 0; from < buffers.length; from += commandsPerPipeline) {
        const pipeline = client.pipeline();
        for (const text of buffers.slice(from, from + commandsPerPipeline)) {
          pipeline.append(`${prefix}:${segment}`, text);
        }
        await pipeline.exec();
      }
    }
  };
  try {
    await send('first', 1);
    const warmUpAt = performance.now();
    await send('warm-up', 1);
    const secondsEach = (performance.now() - warmUpAt) / 1000;
    const segments = Math.min(segmentsMax, Math.max(1, Math.round(options.seconds / secondsEach)));
    const look = () => ({ redis: cpuMicroseconds(redis.pid) });
    const [cpuBefore, ownBefore, machineBefore] = [look(), process.cpuUsage(), machineMicroseconds()];
    const startedAt = performance.now();
    await send('segment', segments);
    const seconds = (performance.now() - startedAt) / 1000;
    const [used, own] = [cpuBetween(cpuBefore, look()), process.cpuUsage(ownBefore)];
    const machineAfter = machineMicroseconds();
    const bytes = buffers.reduce((sum, text) => sum + text.length, 0);
    for (let segment = 0; segment < segments; segment += 1) {
      const length = await client.strlen(`segment:${segment}`);
      if (length !== bytes) throw new BenchError(`Redis holds ${length} of ${bytes} bytes`);
    }
    const records = segments * segmentRows;
    return {
      records,
      requests: segments * buffers.length,
      seconds,
      recordsPerSecond: records / seconds,
      requestsPerSecond: (segments * buffers.length) / seconds,
      cpu: perRecord(used, records),
      cpuSum: sumCpu(used) / records,
      generatorCpu: (own.user + own.system) / records,
      othersShare: othersShare(machineBefore, machineAfter, sumCpu(used) + own.user + own.system),
      storedAfterMs: 0,
    };
  } finally {
    await client.flushall();
    client.disconnect();
  }
}
