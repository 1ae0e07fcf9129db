// Rows that ClickHouse refused for their data: showing them, and sending them again after what refused them
// was mended.

import { hash } from 'node:crypto';
import { readRegistry, StateNotLoaded } from '../accounts/registry.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { type TableName, tableIndex } from '../clickhouse/tables.js';
import { commits } from '../contract/limits.js';
import { type CommitResult, createCommitter } from '../ingest/commit.js';
import { type IngestRecord, packedBytesMax } from '../ingest/pack.js';
import { connectForCommits, ready } from '../redis/client.js';
import { shardOf } from '../redis/keys.js';
import type { AdminContext } from './context.js';

type FailedRow = {
  readonly table_name: TableName;
  readonly segment: string;
  readonly line: number;
  readonly app_id: string;
  readonly row: string;
};

/** The oldest failed rows: where they come from and why they failed; never what is in them. */
export async function listFailed(clickhouse: ClickHouseClient, countMax: number): Promise<unknown[]> {
  const result = await clickhouse.query({
    query: `SELECT table_name, toString(segment) AS segment, line, app_id, length(row) AS bytes, error_code, error, failed_at
      FROM failed_events ORDER BY segment, line LIMIT {countMax:UInt32}`,
    query_params: { countMax },
    format: 'JSONEachRow',
  });
  return result.json();
}

/**
 * Commits every failed row again and then removes it. A crash in between leaves the row, and the next retry
 * finds its claim and only removes it.
 */
export async function retryFailed(context: AdminContext): Promise<{ retried: number; left: number }> {
  const { clickhouse, config, log } = context;
  const { deployment } = await readRegistry(context.redis);
  if (deployment === undefined) throw new StateNotLoaded();
  const result = await clickhouse.query({
    query: `SELECT table_name, toString(segment) AS segment, line, app_id, row
      FROM failed_events ORDER BY segment, line LIMIT 100000`,
    format: 'JSONEachRow',
  });
  const rows = await result.json<FailedRow>();

  const redis = connectForCommits(config.redisUrl, commits.attemptMs, log);
  await ready(redis, 5_000);
  const committers = Array.from({ length: deployment.shards }, (_, shard) =>
    createCommitter({ ...config, redis, shard, epoch: deployment.epoch, log }),
  );
  let retried = 0;
  try {
    for (const row of rows) {
      const committer = committers[shardOf(row.app_id, deployment.shards)];
      const records = [recordOf(row)];
      const group = { limits: [], records, bytes: packedBytesMax([], records) };
      const outcome = await new Promise<CommitResult>((resolve) => committer?.submit(group, resolve));
      if (outcome.kind !== 'committed') break;
      await removeFailed(clickhouse, row);
      retried += 1;
    }
  } finally {
    redis.disconnect();
  }
  return { retried, left: rows.length - retried };
}

/** The row without the stamps of its former segment, claimed under the place it had there. */
function recordOf({ table_name: table, segment, line, row }: FailedRow): IngestRecord {
  let end = row.length;
  for (let stamp = 0; stamp < stampCount; stamp++) end = row.lastIndexOf(',', end - 1);
  return {
    table: tableIndex[table],
    row: row.slice(0, end + 1),
    claim: hash('sha256', `failed\0${table}\0${segment}\0${line}`, 'hex').slice(0, 32),
  };
}

/** Row number, segment, commit number and time of acceptance. */
const stampCount = 4;

async function removeFailed(clickhouse: ClickHouseClient, row: FailedRow): Promise<void> {
  await clickhouse.command({
    query: `ALTER TABLE failed_events DELETE
      WHERE app_id = {app_id:String} AND segment = {segment:UInt64} AND line = {line:UInt32}
      AND table_name = {table_name:String}`,
    query_params: { app_id: row.app_id, segment: row.segment, line: row.line, table_name: row.table_name },
    clickhouse_settings: { mutations_sync: '2' },
  });
}
