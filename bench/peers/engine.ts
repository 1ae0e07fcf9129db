// The floor of storing: the same rows in blocks of the same size into the same table, by the inserts that a worker
// makes, and nothing else. Through HTTP, as everything here talks to the embedded ClickHouse; and into the engine
// of another process without HTTP, which says what of the first HTTP costs.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { stampRows } from '../../src/clickhouse/stamps.js';
import { insertSegment, tokenOf } from '../../src/clickhouse/store.js';
import { plainEnvironment } from '../../test/support/environment.js';
import { runProgram } from '../../test/support/sluice.js';
import { removeTempDir, tempDir } from '../../test/support/temp-dir.js';
import type { Deployment } from '../deployment.js';
import { BenchError } from '../failure.js';
import { measure, type Run, type Subject } from '../measure.js';
import type { DirectResult, DirectTask } from './engine-direct.js';
import { makeSegment } from './segments-of-rows.js';

export type EngineOptions = {
  readonly deployment: Deployment;
  readonly subject: Subject;
  readonly appId: string;
  readonly rowsPerBlock: number;
  readonly blocks: number;
};

/** As many inserts at once as a worker makes. */
const insertsAtOnce = 2;
const warmUpBlocks = 2;
const table = 'events';

/** Inserts the blocks through HTTP; its CPU is ClickHouse's, who sends them is the generator. */
export async function runEngine(options: EngineOptions): Promise<Run> {
  const { deployment, subject, appId, rowsPerBlock, blocks } = options;
  const { sluice } = ownOf(deployment);
  const client = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
  const made = makeBlocks(appId, rowsPerBlock, blocks + warmUpBlocks);
  const insert = async (from: number, to: number) => {
    let next = from;
    const keepInserting = async () => {
      for (let block = made[next++]; block !== undefined && next <= to; block = made[next++]) {
        const segment = { table, number: block.number } as const;
        await insertSegment(client, segment, block.bytes, tokenOf(segment, block.bytes, 0));
      }
    };
    await Promise.all(Array.from({ length: insertsAtOnce }, keepInserting));
  };
  try {
    await insert(0, warmUpBlocks);
    const { run } = await measure({
      subject,
      appId,
      requests: blocks,
      before: { events: warmUpBlocks * rowsPerBlock },
      load: async () => {
        const startedAt = performance.now();
        const cpuBefore = process.cpuUsage();
        await insert(warmUpBlocks, warmUpBlocks + blocks);
        const { user, system } = process.cpuUsage(cpuBefore);
        const seconds = (performance.now() - startedAt) / 1000;
        return { seconds, generatorCpu: user + system, acknowledged: { events: blocks * rowsPerBlock } };
      },
    });
    return run;
  } finally {
    await client.close();
  }
}

/** The same into the engine without HTTP, in a process of its own with a table like the deployment's. */
export async function runEngineDirect(options: Omit<EngineOptions, 'subject'>): Promise<Run> {
  const { deployment, appId, rowsPerBlock, blocks } = options;
  const { sluice } = ownOf(deployment);
  const [created] = await deployment.rows<{ statement: string }>('SHOW CREATE TABLE stored_events');
  const dir = tempDir('engine-direct');
  try {
    const files = makeBlocks(appId, rowsPerBlock, blocks + warmUpBlocks).map(({ number, bytes }) => {
      const file = join(dir, `${number}.rows`);
      writeFileSync(file, bytes);
      return { file, token: tokenOf({ table, number }, bytes, 0) };
    });
    mkdirSync(join(dir, 'data'));
    const task: DirectTask = {
      dir: join(dir, 'data'),
      database: sluice.database,
      statement: created?.statement ?? '',
      files,
      warmUp: warmUpBlocks,
      atOnce: insertsAtOnce,
    };
    writeFileSync(join(dir, 'task.json'), JSON.stringify(task));
    const env = { ...plainEnvironment(), UV_THREADPOOL_SIZE: '16', TZ: 'UTC' };
    const text = await runProgram('bench/peers/engine-direct.js', [join(dir, 'task.json')], env);
    const { seconds, cpu, rows } = JSON.parse(text) as DirectResult;
    const records = blocks * rowsPerBlock;
    if (rows !== records + warmUpBlocks * rowsPerBlock) throw new BenchError(`the engine holds ${rows} rows`);
    return {
      records,
      requests: blocks,
      seconds,
      recordsPerSecond: records / seconds,
      requestsPerSecond: blocks / seconds,
      cpu: { clickhouse: cpu / records },
      cpuSum: cpu / records,
      generatorCpu: 0,
      storedAfterMs: 0,
    };
  } finally {
    removeTempDir(dir);
  }
}

function makeBlocks(appId: string, rows: number, count: number) {
  const nowMs = Date.now();
  return Array.from({ length: count }, (_, index) => {
    const { number, commits } = makeSegment(appId, rows, 1000, index, nowMs);
    return { number, bytes: stampRows(Buffer.from(commits.join(''))).bytes };
  });
}

function ownOf({ own }: Deployment): NonNullable<Deployment['own']> {
  if (own === undefined) throw new BenchError('the floors need a deployment of the bench');
  return own;
}
