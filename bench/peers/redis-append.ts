// The floor of acknowledging: Redis alone, with the same bytes appended to strings, as many commands pipelined as a
// commit carries records, and the file synced before every answer. A string that has reached the length of a segment is
// left, and a new one begins.

import { Redis } from 'ioredis';
import { type RedisHandle, startRedis } from '../../harness/services.js';
import { cpuMicroseconds, machineMicroseconds, othersShare } from '../deployment/processes.js';
import { BenchError } from '../failure.js';
import { cpuBetween, perRecord, type Run, sumCpu } from '../throughput/measure.js';
import { makeSegment } from './segments-of-rows.js';

export type AppendOptions = {
  readonly redis: RedisHandle;
  readonly appId: string;
  /** Rows that one command appends. */
  readonly rowsPerCommand: number;
  /** Commands that are sent together. */
  readonly commandsPerPipeline: number;
  /** Approximate duration. */
  readonly seconds: number;
};

const segmentRows = 16_000;
/** 1 GB in Redis. */
const segmentsMax = 250;

/** A Redis with the deployment's configuration that nobody else uses. */
export function startFloorRedis(): Promise<RedisHandle> {
  return startRedis({ appendfsync: 'always', maxmemory: 6 * 1024 ** 3 });
}

/** Appends for a while; settles when Redis has answered the last command and its strings have the expected length. */
export async function runAppend(options: AppendOptions): Promise<Run> {
  const { redis, appId, rowsPerCommand, commandsPerPipeline } = options;
  const client = new Redis(redis.url);
  // The bytes of one segment, repeated: the content does not matter, and memory is scarce.
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
    const cpuNow = () => ({ redis: cpuMicroseconds(redis.pid) });
    const [cpuBefore, ownBefore, machineBefore] = [cpuNow(), process.cpuUsage(), machineMicroseconds()];
    const startedAt = performance.now();
    await send('segment', segments);
    const seconds = (performance.now() - startedAt) / 1000;
    const [used, own] = [cpuBetween(cpuBefore, cpuNow()), process.cpuUsage(ownBefore)];
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
