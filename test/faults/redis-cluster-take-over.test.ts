// A Redis Cluster of three masters with two replicas each, one of which confirms what is acknowledged. The cluster itself replaces a master
// that is away by one of its replicas: the service continues, and nothing that it acknowledged is lost, doubled or forgotten.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { registryKeys, shardKeys, shardOf } from '../../src/redis/keys.js';
import { createTestAccount } from '../harness/accounts.js';
import { getToken, sendEvents, submitAccepted, untilComplete } from '../harness/deletion.js';
import { assertKept, newProducer, untilDrained } from '../harness/fault-checks.js';
import { post } from '../harness/ingestion.js';
import { type Load, type Producer, startLoad, whileRunning } from '../harness/load.js';
import { type RedisClusterHandle, startRedisCluster } from '../harness/redis-cluster.js';
import { type RedisHandle, type SluiceHandle, startSluice } from '../harness/services.js';
import { until } from '../harness/wait.js';

const shards = 3;

let cluster: RedisClusterHandle;
let sluice: SluiceHandle;
/** One producer for each shard, with an environment of that shard. */
const producers: Producer[] = [];

before(async () => {
  cluster = await startRedisCluster({
    replicas: 2,
    appendfsync: 'always',
    more: ['min-replicas-to-write 0', 'repl-diskless-sync-delay 0', 'cluster-replica-validity-factor 0'],
  });
  sluice = await startSluice({
    redis: cluster.masters[0] as RedisHandle,
    env: { REDIS_URL: cluster.url, REDIS_REPLICAS_ACK: '1', SHARDS: String(shards), JOB_LOCK_MS: '1000' },
  });
  while (producers.filter(Boolean).length < shards) {
    const producer = await newProducer(sluice);
    producers[shardOf(producer.appId, shards)] ??= producer;
  }
});

after(async () => {
  for (const producer of producers) producer.close();
  await sluice?.stop();
  await cluster?.remove();
});

async function underLoad(fault: (loads: readonly Load[]) => Promise<void>): Promise<void> {
  const loads = producers.map((producer) =>
    startLoad(producer, { targets: [sluice.baseUrl], clients: 4, pauseMs: 10 }),
  );
  const all = (count: number) => Promise.all(loads.map((load) => load.more(count)));
  const run = loads.reduceRight(
    (action, load) => () => whileRunning(load, action),
    async () => {
      await all(60);
      await fault(loads);
      await all(100);
    },
  );
  await run();
  await untilDrained(sluice, cluster.redis, 120_000, shards);
  for (const producer of producers) await assertKept(sluice, producer);
}

async function untilAnother(key: string, former: RedisHandle): Promise<void> {
  await until(async () => (await cluster.ownerOf(key)) !== former, 'a replica is the master');
}

for (const [what, key] of [
  ['a shard', shardKeys.state(1)],
  ['the registry', registryKeys.epoch],
] as const) {
  test(`a replica of the killed master of ${what} takes over, and the state is handed over to it first`, async () => {
    const account = await createTestAccount(sluice, 'Kept');
    const [appId = ''] = account.appIds;
    const token = await getToken(sluice, account);
    await sendEvents(sluice, appId, 'stay', [{ identity: 'ada' }, { identity: 'bob' }]);
    const requestId = await submitAccepted(sluice, token, [{ identity: 'ada' }]);
    const master = await cluster.ownerOf(key);
    const primaryField = () =>
      key === registryKeys.epoch
        ? cluster.redis.hget(registryKeys.primary, 'id')
        : cluster.redis.hget(key, 'primary');
    const before = await primaryField();
    assert.ok(before, 'the state names its server');
    await underLoad(async () => {
      await master.kill9();
      await untilAnother(key, master);
    });
    assert.notEqual(await primaryField(), before);
    await master.restart();
    await cluster.untilReplicated(2);
    await untilComplete(sluice, token, requestId);
    const rows = await sluice.rows(`SELECT identity FROM events WHERE app_id = '${appId}'`);
    assert.deepEqual(rows, [{ identity: 'bob' }]);
  });
}

test('a frozen master is replaced; thawed, it decides nothing', async () => {
  const key = shardKeys.state(2);
  const master = await cluster.ownerOf(key);
  await underLoad(async (loads) => {
    master.sigstop();
    try {
      await untilAnother(key, master);
      await loads[2]?.more(60);
    } finally {
      master.sigcont();
    }
  });
  await cluster.untilReplicated(2);
});

test('a master without a replica that confirms acknowledges nothing, and the others continue', async () => {
  const servers = [...cluster.masters, ...cluster.replicas];
  const master = await cluster.ownerOf(shardKeys.state(0));
  const replicas = servers.filter(
    (server, at) => server !== master && at % 3 === servers.indexOf(master) % 3,
  );
  const send = (shard: number) =>
    post(sluice.baseUrl, '/api/track', { app_id: producers[shard]?.appId, event: 'Alone', identity: 'ada' });
  for (const replica of replicas) replica.sigstop();
  try {
    const { status, code } = await send(0);
    assert.deepEqual([status, code], [503, 'unknown']);
    for (const shard of [1, 2])
      if ((await cluster.ownerOf(shardKeys.state(shard))) !== master)
        assert.equal((await send(shard)).status, 200);
  } finally {
    for (const replica of replicas) replica.sigcont();
  }
  await until(async () => (await send(0)).status === 200, 'it is accepted again');
});
