// The worker that a team would write first: it takes many jobs at a time and inserts their rows together.

import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { connectPeerTable, peerQueue } from './shared.js';

const batch = { rowsMax: 10_000, ageMs: 250 };
const jobsAtOnce = 1_000;

const insert = connectPeerTable();
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
    await insert(taken.flatMap(({ rows }) => rows));
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
