// The worker that a team would write first: it takes many jobs at a time and inserts their rows together.

import { createClient } from '@clickhouse/client';
import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { peerDatabase, peerQueue, peerTable } from './shared.js';

const batch = { rowsMax: 10_000, ageMs: 250 };
const jobsAtOnce = 1_000;

const clickhouse = createClient({
  url: process.env.CLICKHOUSE_URL ?? '',
  database: peerDatabase,
  max_open_connections: 256,
  clickhouse_settings: { date_time_input_format: 'best_effort' },
});
let waiting: { rows: readonly object[]; resolve: () => void; reject: (error: unknown) => void }[] = [];
let waitingRows = 0;
let timer: NodeJS.Timeout | undefined;

async function flush(): Promise<void> {
  clearTimeout(timer);
  timer = undefined;
  const taken = waiting;
  waiting = [];
  waitingRows = 0;
  try {
    const values = taken.flatMap(({ rows }) => rows);
    await clickhouse.insert({ table: peerTable, values, format: 'JSONEachRow' });
    for (const { resolve } of taken) resolve();
  } catch (error) {
    for (const { reject } of taken) reject(error);
  }
}

new Worker(
  peerQueue,
  (job) =>
    new Promise<void>((resolve, reject) => {
      const rows = job.data as readonly object[];
      waiting.push({ rows, resolve, reject });
      waitingRows += rows.length;
      if (waiting.length >= jobsAtOnce || waitingRows >= batch.rowsMax) void flush();
      else timer ??= setTimeout(() => void flush(), batch.ageMs);
    }),
  {
    connection: new Redis(process.env.REDIS_URL ?? '', { maxRetriesPerRequest: null }),
    concurrency: jobsAtOnce,
  },
);
