// The same code on three Redis masters and two ClickHouse servers, with four shards. Each master and each server has its own shards, and a
// fault of one affects the others as little as possible.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before } from 'node:test';
import { readConfig } from '../../src/config.js';
import { ConfigError } from '../../src/config-values.js';
import { registryKeys, shardKeys, shardOf } from '../../src/redis/keys.js';
import { createTestAccount } from '../harness/accounts.js';
import {
  deletionPaths,
  getToken,
  sendEvents,
  sendIdentify,
  submit,
  submitAccepted,
  untilComplete,
} from '../harness/deletion.js';
import { assertAnsweredInTime, assertKept, newProducer, readMetric } from '../harness/fault-checks.js';
import { post, postInTime } from '../harness/ingestion.js';
import { countOutcomes, type Load, type Producer, startLoad, whileRunning } from '../harness/load.js';
import { ask, type RedisClusterHandle, startRedisCluster } from '../harness/redis-cluster.js';
import {
  type ApiHandle,
  type ClickHouseHandle,
  type RedisHandle,
  type SluiceHandle,
  startSluice,
} from '../harness/services.js';
import { until } from '../harness/wait.js';
import { test } from '../support/test.js';
import { beginPairing, collect, openLivePage } from '../support/visualizer.js';

const shards = 4;
/** Clients per shard; each has one request under way at a time. */
const clients = 3;
/** Requests that are acknowledged under load for each shard, half of them before the fault and half after it. */
const acknowledgedMin = 40;

let cluster: RedisClusterHandle;
let sluice: SluiceHandle;
/** One producer for each shard, with an environment of that shard. */
let producers: Producer[];

before(async () => {
  cluster = await startRedisCluster();
  sluice = await startSluice({
    redis: cluster.masters[0] as RedisHandle,
    clickhouseServers: 2,
    apiProcesses: 2,
    env: {
      REDIS_URL: cluster.url,
      SHARDS: String(shards),
      JOB_LOCK_MS: '1000',
      // Segments as in production: under load, each costs an insert.
      SEGMENT_AGE_MS_MAX: '400',
    },
  });
  producers = await newProducers();
});

after(async () => {
  for (const producer of producers ?? []) producer.close();
  await sluice?.stop();
  await cluster?.remove();
});

async function newProducers(): Promise<Producer[]> {
  const byShard = new Map<number, Producer>();
  while (byShard.size < shards) {
    const producer = await newProducer(sluice);
    const shard = shardOf(producer.appId, shards);
    if (byShard.has(shard)) producer.close();
    else byShard.set(shard, producer);
  }
  return [...byShard].sort(([a], [b]) => a - b).map(([, producer]) => producer);
}

/** Settles when ClickHouse has everything that was accepted, in all shards. */
async function untilDrained(): Promise<void> {
  for (let shard = 0; shard < shards; shard += 1) {
    await until(
      async () => (await cluster.redis.zcard(shardKeys.segments(shard))) === 0,
      `no segment of shard ${shard} is outstanding`,
    );
    assert.deepEqual(await cluster.redis.hmget(shardKeys.state(shard), 'bytes', 'rows'), ['0', '0']);
  }
}

async function shardsOf(master: RedisHandle): Promise<number[]> {
  const held: number[] = [];
  for (let shard = 0; shard < shards; shard += 1) {
    if ((await cluster.masterOf(shardKeys.state(shard))) === master) held.push(shard);
  }
  return held;
}

/** Runs load on every shard while `fault` happens; then checks every promise. */
async function underLoad(fault: (loads: readonly Load[]) => Promise<void>): Promise<void> {
  const targets = sluice.api.map(({ baseUrl }) => baseUrl);
  const before = producers.map(({ settled }) => settled.length);
  const loads = producers.map((producer) => startLoad(producer, { targets, clients, pauseMs: 250 }));
  const all = (count: number) => Promise.all(loads.map((load) => load.more(count)));
  const run = loads.reduceRight(
    (action, load) => () => whileRunning(load, action),
    async () => {
      await all(acknowledgedMin / 2);
      await fault(loads);
      await all(acknowledgedMin / 2);
    },
  );
  await run();
  await untilDrained();
  for (const [index, producer] of producers.entries()) {
    await assertKept(sluice, producer, { acknowledgedMin });
    assertAnsweredInTime(producer.settled.slice(before[index]));
  }
}

test('takes and stores the records of all shards, each shard on its master', async () => {
  const held = await Promise.all(cluster.masters.map(shardsOf));
  assert.deepEqual(
    held.map(({ length }) => length > 0),
    [true, true, true],
    'every master holds a shard',
  );
  await underLoad(async (loads) => {
    await Promise.all(loads.map((load) => load.more(40)));
  });
  for (const master of cluster.masters) {
    const node = cluster.redis.nodes('master').find(({ options }) => options.port === master.port);
    const keys = (await node?.keys('*')) ?? [];
    const tags = new Set(keys.map((key) => /^\{(\w+)\}:/.exec(key)?.[1]));
    const own = (await shardsOf(master)).map((shard) => `s${shard}`);
    if ((await cluster.masterOf(registryKeys.epoch)) === master) own.push('registry');
    assert.deepEqual([...tags].sort(), own.sort(), 'every key has the tag of a shard, or of the registry');
  }
});

for (const [what, key, number] of [
  ['of two shards and a ClickHouse server', shardKeys.state(0), 1],
  ['of the registry and of a shard and the first ClickHouse server', registryKeys.epoch, 0],
] as const) {
  test(`loses and doubles nothing when the master ${what} are killed and come back`, async () => {
    const master = await cluster.masterOf(key);
    const server = sluice.clickhouses[number] as ClickHouseHandle;
    const affected = new Set(await shardsOf(master));
    const before = producers.map(({ settled }) => settled.length);
    await underLoad(async (loads) => {
      await Promise.all([master.kill9(), server.kill9()]);
      // Records for the shards of other masters are accepted; for the shards of this one the answer is 503.
      await Promise.all(
        loads.map((load, shard) =>
          load.more(12, affected.has(shard) ? { outcomes: ['overloaded', 'unknown'] } : {}),
        ),
      );
      await Promise.all([master.restart(), server.restart()]);
      await cluster.untilOk();
    });
    for (const shard of affected) {
      const counts = countOutcomes((producers[shard] as Producer).settled.slice(before[shard]));
      // A request that certainly did not reach Redis is refused as overloaded. So only requests that were under way may be unknown: at the
      // kill, and perhaps twice more if a busy machine paused. If all failures counted as unknown, they would be 12 and more.
      assert.ok(counts.overloaded > 0 && counts.unknown <= 3 * clients, JSON.stringify(counts));
    }
  });
}

test('deletes users from the environments of every shard, and leaves no trace on any master', async () => {
  const names = ['Main Production', ...Array.from({ length: 11 }, (_, i) => `Environment ${i}`)];
  const account = await createTestAccount(sluice, 'Deletions', names);
  const spread = new Set(account.appIds.map((appId) => shardOf(appId, shards)));
  assert.ok(spread.size > 1, 'the environments are in several shards');
  const token = await getToken(sluice, account);
  for (const appId of account.appIds) {
    await sendEvents(sluice, appId, 'go', [{ identity: 'gone@example.com' }, { user_id: '77' }]);
    await sendEvents(sluice, appId, 'stay', [{ identity: 'other@example.com' }, { user_id: '770' }]);
    await sendIdentify(sluice, appId, '77', 'gone@example.com');
  }
  const forks = () =>
    Promise.all(
      cluster.masters.map(async ({ port }) =>
        Number(/total_forks:(\d+)/.exec(await ask(port, 'info', 'stats'))?.[1]),
      ),
    );
  const forksBefore = await forks();
  await untilComplete(sluice, token, await submitAccepted(sluice, token, [{ identity: 'gone@example.com' }]));
  const rows = await sluice.rows<{ fate: string; rows: string }>(
    `SELECT properties['fate'] AS fate, toString(count()) AS rows FROM events
     WHERE app_id IN (${account.appIds.map((appId) => `'${appId}'`).join()}) GROUP BY fate`,
  );
  assert.deepEqual(rows, [{ fate: 'stay', rows: String(2 * names.length) }]);
  await until(
    async () => (await forks()).every((count, index) => count > (forksBefore[index] ?? 0)),
    'every master has rewritten its append-only file',
  );
});

test('holds rate limits over all processes, and tokens end with their key', async () => {
  const account = await createTestAccount(sluice, 'Limits');
  const [appId = ''] = account.appIds;
  const statuses: number[] = [];
  for (let request = 0; request < 33; request += 1) {
    const { baseUrl = '' } = sluice.api[request % 2] ?? {};
    const body = { app_id: appId, event: 'Limited', identity: 'hot@example.com' };
    statuses.push((await postInTime(baseUrl, '/api/track', body)).status);
  }
  assert.deepEqual(statuses, [...Array(30).fill(200), ...Array(3).fill(429)]);
  const token = await getToken(sluice, account);
  await sluice.admin('keys', 'rotate', appId);
  assert.equal((await submit(sluice, token, [{ user_id: 1 }])).status, 401);
  const accounts = (await sluice.admin('accounts', 'list')) as { account_id: string }[];
  assert.ok(accounts.some(({ account_id }) => account_id === account.accountId));
});

test('shows what a device sends, even while the master that passed it on is away', async () => {
  const [one, two] = sluice.api as [ApiHandle, ApiHandle];
  const { pairing, code } = await beginPairing(one.baseUrl, sluice.appId);
  const page = openLivePage(two.adminUrl, { token: sluice.adminToken, code });
  try {
    await page.heard('paired');
    // The page's process listens to the first master, and to the next one while that is away.
    await (cluster.masters[0] as RedisHandle).kill9();
    await page.heard('gap');
    await (cluster.masters[0] as RedisHandle).restart();
    await cluster.untilOk();
    await until(
      async () => {
        const message = { type: 'event', id: randomUUID(), user_id: '7', session_id: 's', event: 'Shown' };
        await collect(one.baseUrl, sluice.appId, [message], pairing);
        return page.said.some(({ type }) => type === 'batch');
      },
      { what: 'the page shows what the device sends', everyMs: 200 },
    );
  } finally {
    page.socket.terminate();
  }
});

test('notices an emptied master, continues with the others, and recovers by a restore', async () => {
  const emptied = await cluster.masterOf(shardKeys.state(3));
  assert.deepEqual(await shardsOf(emptied), [3]);
  await untilDrained();
  await ask(emptied.port, 'flushall');
  const send = (shard: number) => {
    const body = { app_id: producers[shard]?.appId, event: 'Emptied', identity: 'emptied@example.com' };
    return post(sluice.baseUrl, '/api/track', body);
  };
  // The script refuses at once, but if the machine pauses, the outcome may be unknown.
  const { status, code } = await until(async () => {
    const answer = await send(3);
    return answer.code !== 'unknown' && answer;
  }, 'the shard is refused');
  assert.deepEqual([status, code], [503, 'overloaded']);
  for (const shard of [0, 1, 2])
    await until(async () => (await send(shard)).status === 200, `shard ${shard} is served`);
  const readiness = async () => (await fetch(`${sluice.baseUrl}/health/ready`)).json();
  await until(
    async () => JSON.stringify(await readiness()).includes('state of shard 3'),
    'the health says which shard lacks its state',
  );
  assert.equal(((await readiness()) as { ready: boolean }).ready, true, 'the others are served');
  const account = await createTestAccount(sluice, 'While a shard is away');
  const refused = await submit(sluice, await getToken(sluice, account), [{ user_id: 1 }]);
  assert.equal(refused.status, 503, `${deletionPaths.submit}: the fence of every shard must be known`);

  await sluice.admin('state', 'reload');
  await until(
    async () => JSON.stringify(await readiness()) === '{"ready":true,"missing":[]}',
    'nothing is missing',
  );
  await until(async () => (await send(3)).status === 200, 'shard 3 is served again');
  await untilDrained();
});

test('a worker that starts while a master is silent stores the segments on the others', async () => {
  const silent = await cluster.masterOf(shardKeys.state(3));
  assert.deepEqual(await shardsOf(silent), [3]);
  await untilDrained();
  for (const worker of sluice.workers) worker.sigstop();
  process.kill(silent.pid, 'SIGSTOP');
  try {
    await sluice.addWorker();
    for (const shard of [0, 1, 2]) {
      const body = { app_id: producers[shard]?.appId, event: 'Beside the silent', identity: 'ada' };
      await until(
        async () => (await post(sluice.baseUrl, '/api/track', body)).status === 200,
        `an event of shard ${shard} is accepted`,
      );
      await until(
        async () => (await cluster.redis.zcard(shardKeys.segments(shard))) === 0,
        `shard ${shard} is stored`,
      );
    }
    // The metrics of the other shards are shown meanwhile.
    for (let times = 0; times < 2; times += 1)
      assert.equal(await readMetric(sluice.api[0] as ApiHandle, 'sluice_backlog_segments'), 0);
  } finally {
    process.kill(silent.pid, 'SIGCONT');
    for (const worker of sluice.workers) worker.sigcont();
  }
  await cluster.untilOk();
  await untilDrained();
});

test('several URLs mean a cluster, as does REDIS_CLUSTER with the URL of one node', () => {
  const two = 'redis://a:1,redis://b:2';
  assert.equal(readConfig({ REDIS_URL: two }).redisCluster, true);
  assert.equal(readConfig({ REDIS_URL: 'redis://a:1', REDIS_CLUSTER: '1' }).redisCluster, true);
  assert.equal(readConfig({ REDIS_URL: 'redis://a:1' }).redisCluster, false);
  for (const env of [
    { REDIS_CLUSTER: '1' },
    { REDIS_CLUSTER: 'yes', REDIS_URL: 'redis://a:1' },
    { REDIS_CLUSTER: '0', REDIS_URL: two },
    { REDIS_URL: 'redis://a:1,rediss://b:2' },
    { REDIS_URL: 'redis://a:1,' },
    { REDIS_URL: 'redis://a:1/3', REDIS_CLUSTER: '1' },
  ]) {
    assert.throws(() => readConfig(env), ConfigError, JSON.stringify(env));
  }
});
