// Workers of BullMQ on a Redis Cluster. The connection on which they wait for jobs must come back after every fault.

import { after, before, test } from 'node:test';
import { readConfig } from '../../src/config.js';
import { createLog } from '../../src/log.js';
import { Worker } from '../../src/packages/bullmq.js';
import { connectForQueue } from '../../src/redis/client.js';
import { shardKeys } from '../../src/redis/keys.js';
import { openQueue, storeJobOptions, storeQueueName, workerOptions } from '../../workers/queues.js';
import { ask, type RedisClusterHandle, startRedisCluster } from '../harness/redis-cluster.js';
import { until } from '../harness/wait.js';

const shard = 0;
/** Chance decides which master answers the check of a connection, so one worker alone would show little. */
const names = Array.from({ length: 8 }, (_, number) => `${storeQueueName}-${number}`);
/** A worker asks again for a job after this time, or renews its connection if there is no answer a second later. */
const drainDelay = 1;
const commandMsMax = 3_000;
/** Long enough for a connection to be renewed and checked, although its commands wait for the silent master. */
const failsMs = 10_000;

let cluster: RedisClusterHandle;

before(async () => {
  // Redis's default: if one of its masters is away, the whole cluster fails.
  cluster = await startRedisCluster({ more: ['cluster-require-full-coverage yes'] });
});

after(async () => {
  await cluster?.remove();
});

test('workers whose connections were renewed while the cluster failed get jobs again', async (context) => {
  const config = readConfig({ REDIS_URL: cluster.url });
  const connection = connectForQueue(config, createLog('test', 'silent'), commandMsMax);
  const options = { ...workerOptions(shard, connection, config), drainDelay };
  const silent = await cluster.masterOf(shardKeys.state(shard));
  const ran = new Set<string>();
  const queues = names.map((name) => openQueue(name, shard, connection));
  const workers = names.map(
    (name) => new Worker(name, async ({ id }) => void ran.add(`${name} ${id}`), options),
  );
  // The test makes the connections fail, so their errors are expected.
  for (const worker of workers) worker.on('error', () => undefined);
  const runAll = async (jobId: string) => {
    // The queues' own connection may still look for the silent master, so adding is repeated. Its id keeps the job single.
    for (const queue of queues)
      await until(() => queue.add('store', {}, { ...storeJobOptions, jobId }), 'a job is added');
    await until(
      () => names.every((name) => ran.has(`${name} ${jobId}`)),
      `every worker runs its job ${jobId}`,
    );
  };
  context.after(async () => {
    silent.sigcont();
    await Promise.all(workers.map((worker) => worker.close(true)));
    await Promise.all(queues.map((queue) => queue.close()));
    connection.disconnect();
  });
  await runAll('before');
  silent.sigstop();
  for (const { port } of cluster.masters.filter((master) => master !== silent)) {
    await until(
      async () => (await ask(port, 'cluster', 'info')).includes('cluster_state:fail'),
      'the cluster fails',
    );
  }
  await new Promise((resolve) => setTimeout(resolve, failsMs));
  silent.sigcont();
  await cluster.untilOk();
  await runAll('after');
});
