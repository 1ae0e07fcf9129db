// The floor of storing: the same rows, in blocks of the same size, into the same table, by the same inserts as a worker makes,
// for as long as a run of the service, and nothing else.

import { connectClickHouse } from '../../src/clickhouse/client.js';
import { stampRows } from '../../src/clickhouse/stamps.js';
import { insertSegment, tokenOf } from '../../src/clickhouse/store.js';
import type { Deployment } from '../deployment/deployment.js';
import { measure, type Run, type Subject } from '../throughput/measure.js';
import { makeSegment } from './segments-of-rows.js';

export type EngineOptions = {
  readonly deployment: Deployment;
  /** Only ClickHouse's CPU counts; the sender is the generator. */
  readonly subject: Subject;
  readonly appId: string;
  readonly rowsPerBlock: number;
  readonly seconds: number;
};

/** As many concurrent inserts as a worker makes. */
const insertsAtOnce = 2;
const warmUpBlocks = 4;
const bytesMax = 2_000_000_000;
const table = 'events';

/** Rejects unless all rows are stored. */
export async function runEngine(options: EngineOptions): Promise<Run> {
  const { deployment, subject, appId, rowsPerBlock, seconds } = options;
  const { sluice } = deployment.own;
  const client = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
  const nowMs = Date.now();
  /** They are made before the clock starts: a block costs as much to make as to store. */
  const makeBlocks = (first: number, count: number) =>
    Array.from({ length: count }, (_, index) => {
      const { number, commits } = makeSegment(appId, rowsPerBlock, 1000, first + index, nowMs);
      return { number, bytes: stampRows(Buffer.from(commits.join(''))).bytes };
    });
  /** Settles with how long it took, in s. */
  const insertAll = async (blocks: ReturnType<typeof makeBlocks>) => {
    const startedAt = performance.now();
    const rest = [...blocks];
    const keepInserting = async () => {
      for (let block = rest.shift(); block !== undefined; block = rest.shift()) {
        const segment = { table, number: block.number } as const;
        await insertSegment(client, segment, block.bytes, tokenOf(segment, block.bytes, 0));
      }
    };
    await Promise.all(Array.from({ length: insertsAtOnce }, keepInserting));
    return (performance.now() - startedAt) / 1000;
  };
  try {
    const first = makeBlocks(0, warmUpBlocks);
    const secondsEach = (await insertAll(first)) / warmUpBlocks;
    const fitting = Math.floor(bytesMax / (first[0]?.bytes.length ?? 1));
    const count = Math.max(2, Math.min(fitting, Math.round(seconds / secondsEach)));
    const blocks = makeBlocks(warmUpBlocks, count);
    const { run } = await measure({
      subject,
      appId,
      before: { events: warmUpBlocks * rowsPerBlock },
      load: async () => {
        const cpuBefore = process.cpuUsage();
        const taken = await insertAll(blocks);
        const { user, system } = process.cpuUsage(cpuBefore);
        const generatorCpu = user + system;
        return {
          requests: count,
          seconds: taken,
          generatorCpu,
          generatorShare: generatorCpu / 1e6 / taken,
          acknowledged: { events: count * rowsPerBlock },
        };
      },
    });
    return run;
  } finally {
    await client.close();
  }
}
