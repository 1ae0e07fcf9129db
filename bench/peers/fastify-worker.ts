// The worker that a team would write first: takes the jobs, a thousand at a time, and inserts what has gathered.

import { createClient } from '@clickhouse/client';
import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { peerDatabase, peerQueue, peerTable } from './peer-names.js';

type Waiting = {
  readonly row: object;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
};

const batch = { rowsMax: 1000, ageMs: 250 };

const clickhouse = createClient({ url: process.env.CLICKHOUSE_URL ?? '', database: peerDatabase });
let waiting: Waiting[] = [];
let timer: NodeJS.Timeout | undefined;

async function flush(): Promise<void> {
  clearTimeout(timer);
  timer = undefined;
  const taken = waiting;
  waiting = [];
  try {
    await clickhouse.insert({
      table: peerTable,
      values: taken.map(({ row }) => row),
      format: 'JSONEachRow',
      clickhouse_settings: { date_time_input_format: 'best_effort' },
    });
    for (const { resolve } of taken) resolve();
  } catch (error) {
    for (const { reject } of taken) reject(error);
  }
}

new Worker(
  peerQueue,
  (job) =>
    new Promise<void>((resolve, reject) => {
      waiting.push({ row: job.data as object, resolve, reject });
      if (waiting.length >= batch.rowsMax) void flush();
      else timer ??= setTimeout(() => void flush(), batch.ageMs);
    }),
  {
    connection: new Redis(process.env.REDIS_URL ?? '', { maxRetriesPerRequest: null }),
    concurrency: batch.rowsMax,
  },
);
