// Workers of BullMQ on a Redis Cluster. The connection on which they wait for jobs must come back after every fault.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ask, type RedisClusterHandle, startRedisCluster } from '../../harness/redis-cluster.js';
import { until } from '../../harness/wait.js';
import { readConfig } from '../../src/config.js';
import { createLog } from '../../src/log.js';
import { Worker } from '../../src/packages/bullmq.js';
import { connectForQueue } from '../../src/redis/client.js';
import { openQueue, storeJobOptions, storeQueueName, workerOptions } from '../../workers/queues.js';

const shard = 0;
/** Longer than a worker waits for a job with `drainDelay: 1`, so that it renews its connection while the cluster fails. */
const failsMs = 8_000;

let cluster: RedisClusterHandle;

before(async () => {
  // So a slot that no master has makes the whole cluster fail, as it does while masters look for each other.
  cluster = await startRedisCluster({ more: ['cluster-require-full-coverage yes'] });
});

after(async () => {
  await cluster?.remove();
});

test('a worker gets jobs again after a cluster that failed for longer than it waits for one', async () => {
  const config = readConfig({ REDIS_URL: cluster.url });
  const connection = connectForQueue(config, createLog('test', 'silent'));
  const queue = openQueue(storeQueueName, shard, connection);
  const ran: string[] = [];
  const worker = new Worker(storeQueueName, async ({ id }) => void ran.push(String(id)), {
    ...workerOptions(shard, connection, config),
    drainDelay: 1,
  });
  worker.on('error', () => {
    // Connections fail, which is the test.
  });
  const runs = async (jobId: string) => {
    await queue.add('store', {}, { ...storeJobOptions, jobId });
    await until(() => ran.includes(jobId), { deadlineMs: 30_000, what: `job ${jobId} runs` });
  };
  const [first] = cluster.masters;
  assert.ok(first);
  const lacked = '0';
  try {
    await runs('before');
    for (const { port } of cluster.masters) {
      await ask(port, 'cluster', 'delslots', lacked);
      await until(async () => (await ask(port, 'cluster', 'info')).includes('cluster_state:fail'), {
        deadlineMs: 30_000,
        what: 'the cluster fails',
      });
    }
    for (const { port } of cluster.masters) await ask(port, 'client', 'kill', 'type', 'normal');
    await new Promise((resolve) => setTimeout(resolve, failsMs));
    await ask(first.port, 'cluster', 'addslots', lacked);
    await cluster.untilOk();
    await runs('after');
  } finally {
    await worker.close(true);
    await queue.close();
    connection.disconnect();
  }
});
