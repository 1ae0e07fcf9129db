// The floor of storing: the same rows, in blocks of the same size, into the same table, by the same inserts as a worker
// makes, and nothing else. Once through ClickHouse's HTTP server, as the service does. And once through its native
// protocol, where another ClickHouse has parsed the rows and sends columns: the difference is the cost of reading JSON.

import { credentials } from '../../harness/clickhouse.js';
import { startClickHouse } from '../../harness/services.js';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { stampRows } from '../../src/clickhouse/stamps.js';
import { insertSegment, insertSettings, tokenOf } from '../../src/clickhouse/store.js';
import { columns } from '../../src/clickhouse/tables.js';
import type { Deployment } from '../deployment/deployment.js';
import { cpuMicroseconds } from '../deployment/processes.js';
import { BenchError } from '../failure.js';
import { measure, type Run, type Subject } from '../throughput/measure.js';
import { makeSegment } from './segments-of-rows.js';

export type EngineOptions = {
  readonly deployment: Deployment;
  readonly subject: Subject;
  readonly appId: string;
  readonly rowsPerBlock: number;
  readonly blocks: number;
};

type Block = ReturnType<typeof makeBlocks>[number];

/** As many concurrent inserts as a worker makes. */
const insertsAtOnce = 2;
const warmUpBlocks = 2;
const table = 'events';

/** Inserts the blocks through HTTP. Only ClickHouse's CPU counts; the sender is the generator. */
export async function runEngine(options: EngineOptions): Promise<Run> {
  const { sluice } = ownOf(options.deployment);
  const client = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
  const blocks = makeBlocks(options.appId, options.rowsPerBlock, options.blocks + warmUpBlocks);
  const insert = ({ number, bytes }: Block) => {
    const segment = { table, number } as const;
    return insertSegment(client, segment, bytes, tokenOf(segment, bytes, 0));
  };
  const usage = () => {
    const { user, system } = process.cpuUsage();
    return user + system;
  };
  try {
    return await measureInserts(options, blocks, insert, usage);
  } finally {
    await client.close();
  }
}

/** The same from another ClickHouse that holds the rows, by `remote` and so by the native protocol. */
export async function runEngineNative(options: EngineOptions): Promise<Run> {
  const { sluice } = ownOf(options.deployment);
  const { clickhouse, database } = sluice;
  const sender = await startClickHouse();
  const ask = async (query: string, body: Buffer | string = '', settings: Record<string, string> = {}) => {
    const url = `${sender.origin}/?${new URLSearchParams({ query, ...settings })}`;
    const reply = await fetch(url, { method: 'POST', body, headers: credentials(sender.tester) });
    const text = await reply.text();
    if (!reply.ok)
      throw new BenchError(`the sending ClickHouse answered ${reply.status}: ${text.slice(0, 500)}`);
    return text;
  };
  try {
    const { name, password } = clickhouse.tester;
    const remote = `remote('127.0.0.1:${clickhouse.tcpPort}', '${database}', 'stored_${table}', '${name}', '${password}')`;
    const blocks = makeBlocks(options.appId, options.rowsPerBlock, options.blocks + warmUpBlocks);
    const names = columns.events.join(', ');
    const settings = Object.fromEntries(
      Object.entries(insertSettings).map(([key, value]) => [key, String(value)]),
    );
    for (const { number, bytes } of blocks) {
      await ask(`CREATE TABLE block_${number} ENGINE = Memory AS SELECT ${names} FROM ${remote} WHERE 0`);
      await ask(`INSERT INTO block_${number} FORMAT JSONCompactEachRow`, bytes, settings);
    }
    const insert = async ({ number, bytes }: Block) => {
      const token = tokenOf({ table, number }, bytes, 0);
      const insertion = `INSERT INTO FUNCTION ${remote} (${names}) SELECT * FROM block_${number}`;
      await ask(insertion, '', { ...settings, insert_deduplication_token: token });
    };
    return await measureInserts(options, blocks, insert, () => cpuMicroseconds(sender.pid), 'outside');
  } finally {
    await sender.remove();
  }
}

async function measureInserts(
  { subject, appId, rowsPerBlock, blocks: count }: EngineOptions,
  blocks: readonly Block[],
  insert: (block: Block) => Promise<void>,
  generatorMicroseconds: () => number,
  generator: 'here' | 'outside' = 'here',
): Promise<Run> {
  const insertAll = async (some: readonly Block[]) => {
    const rest = [...some];
    const keepInserting = async () => {
      for (let block = rest.shift(); block !== undefined; block = rest.shift()) await insert(block);
    };
    await Promise.all(Array.from({ length: insertsAtOnce }, keepInserting));
  };
  await insertAll(blocks.slice(0, warmUpBlocks));
  const { run } = await measure({
    subject,
    appId,
    requests: count,
    before: { events: warmUpBlocks * rowsPerBlock },
    load: async () => {
      const startedAt = performance.now();
      const cpuBefore = generatorMicroseconds();
      await insertAll(blocks.slice(warmUpBlocks));
      const seconds = (performance.now() - startedAt) / 1000;
      const generatorCpu = generatorMicroseconds() - cpuBefore;
      return {
        seconds,
        generatorCpu,
        generatorCpuOutside: generator === 'outside' ? generatorCpu : 0,
        acknowledged: { events: count * rowsPerBlock },
      };
    },
  });
  return run;
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
