// A Redis with replicas and sentinels, which make a replica the primary when the primary is away: the service continues by itself, and
// nothing that it acknowledged is lost, doubled or forgotten.

import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before } from 'node:test';
import type { Redis } from 'ioredis';
import { registryKeys } from '../../src/redis/keys.js';
import { createTestAccount } from '../harness/accounts.js';
import { getToken, sendEvents, submitAccepted, untilComplete } from '../harness/deletion.js';
import { assertKept, newProducer, readMetric, untilDrained } from '../harness/fault-checks.js';
import { type Load, type Request, startLoad, whileRunning } from '../harness/load.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { ask } from '../harness/redis-cluster.js';
import { type RedisReplicasHandle, startRedisReplicas } from '../harness/redis-replicas.js';
import { type ApiHandle, type RedisHandle, type SluiceHandle, startSluice } from '../harness/services.js';
import { setSuppressed } from '../harness/suppression.js';
import { until } from '../harness/wait.js';
import { test } from '../support/test.js';

/** Records have to be accepted again this soon after a fault, unless the machine pauses: then sentinels decide nothing for half a minute. */
const acceptedAgainMsMax = 10_000;

let redis: RedisReplicasHandle;
let sluice: SluiceHandle;

before(async () => {
  redis = await startRedisReplicas({ replicas: 2, sentinels: 3 });
  sluice = await startSluice({
    redis: redis.servers[0] as RedisHandle,
    // Segments as in production: under load, each costs an insert.
    env: {
      REDIS_URL: redis.url,
      REDIS_REPLICAS_ACK: '1',
      JOB_LOCK_MS: '1000',
      SEGMENT_AGE_MS_MAX: '400',
    },
  });
});

after(async () => {
  await sluice?.stop();
  await redis?.remove();
});

/**
 * Causes a fault of the primary under load; once all is well again, checks what the producer was answered. Does so up to three times until
 * records were accepted again soon, since a pause of the machine rarely delays each take-over.
 */
async function underLoad(fault: (primary: RedisHandle, load: Load) => Promise<void>): Promise<void> {
  let quickestMs = Number.POSITIVE_INFINITY;
  for (let tries = 0; tries < 3 && quickestMs >= acceptedAgainMsMax; tries += 1) {
    await redis.untilSeen();
    const producer = await newProducer(sluice);
    const load = startLoad(producer, { targets: [sluice.baseUrl] });
    await whileRunning(load, async () => {
      await load.more(100);
      await fault(await redis.primary(), load);
      await load.more(100);
    });
    await untilAllStored();
    await assertKept(sluice, producer);
    await redis.untilReplicated(2);
    quickestMs = Math.min(quickestMs, Math.max(...pausesOf(producer.settled)));
  }
  assert.ok(quickestMs < acceptedAgainMsMax, `nothing was accepted for ${quickestMs} ms`);
}

function pausesOf(requests: readonly Request[]): number[] {
  const acceptedMs = requests
    .filter(({ outcome }) => outcome === 'acknowledged')
    .map(({ settledMs }) => settledMs);
  return acceptedMs.slice(1).map((ms, index) => ms - (acceptedMs[index] as number));
}

async function untilAllStored(): Promise<void> {
  const connection = connectTestRedis((await redis.primary()).url);
  try {
    await untilDrained(sluice, connection);
  } finally {
    connection.disconnect();
  }
}

/** How many documents ClickHouse lacks. */
async function countUncopied(): Promise<number> {
  const connection = connectTestRedis((await redis.primary()).url);
  try {
    return await connection.zcard(registryKeys.uncopied);
  } finally {
    connection.disconnect();
  }
}

async function untilAnother({ port }: RedisHandle): Promise<void> {
  await until(async () => (await redis.primary())?.port !== port, 'another server is the primary');
}

test('a killed primary is replaced, and returns as a replica', async () => {
  await underLoad(async (primary, load) => {
    await primary.kill9();
    await untilAnother(primary);
    await load.more(100);
    await primary.restart();
  });
});

test('a frozen primary is replaced; thawed, it decides nothing and becomes a replica', async () => {
  await underLoad(async (primary, load) => {
    primary.sigstop();
    try {
      await untilAnother(primary);
      await load.more(200);
    } finally {
      primary.sigcont();
    }
    await load.more(200);
  });
});

/** Settles as soon as a replica has become a primary, before the other replica follows it. */
async function untilPromoted(former: RedisHandle): Promise<void> {
  const others = redis.servers
    .filter(({ port }) => port !== former.port)
    .map(({ url }) => connectTestRedis(url));
  const isPrimary = async (other: Redis) => /^role:master/m.test(await other.info('replication'));
  try {
    await until(async () => (await Promise.all(others.map(isPrimary))).includes(true), {
      everyMs: 2,
      what: 'a replica is promoted',
    });
  } finally {
    for (const other of others) other.disconnect();
  }
}

const replacements: Readonly<Record<string, (primary: RedisHandle) => Promise<void>>> = {
  'that goes on in the middle of its replacement': async (primary) => {
    primary.sigstop();
    try {
      await untilPromoted(primary);
    } finally {
      primary.sigcont();
    }
  },
  'that somebody has replaced by a command': async () => {
    const [, sentinel] = /127\.0\.0\.1:(\d+)/.exec(redis.url) ?? [];
    assert.match(await ask(Number(sentinel), 'sentinel', 'failover', 'sluice'), /^OK/);
  },
};

for (const [which, replace] of Object.entries(replacements)) {
  test(`a primary ${which} acknowledges nothing with a replica that is about to follow the next one`, async () => {
    await underLoad(async (primary, load) => {
      await replace(primary);
      await untilAnother(primary);
      await load.more(200);
    });
  });
}

test('a primary that lost its disk returns empty, and as a replica', async () => {
  await underLoad(async (primary) => {
    await primary.kill9();
    rmSync(join(primary.dir, 'appendonlydir'), { recursive: true });
    await untilAnother(primary);
    await primary.restart();
  });
});

test('two take-overs in a row keep keys, tokens, suppressions and deletions that were answered before', async () => {
  const account = await createTestAccount(sluice, 'Kept');
  const [appId = ''] = account.appIds;
  const token = await getToken(sluice, account);
  const users = ['ada', 'bob'].map((identity) => ({ identity }));
  await sendEvents(sluice, appId, 'stay', users);
  await setSuppressed(sluice.baseUrl, token, [{ identity: 'eve' }], true);
  const requestId = await submitAccepted(sluice, token, [{ identity: 'ada' }]);
  for (let round = 0; round < 2; round += 1) {
    const primary = await redis.primary();
    await primary.kill9();
    await untilAnother(primary);
    await primary.restart();
    await redis.untilReplicated(2);
  }
  await untilComplete(sluice, token, requestId);
  await sendEvents(sluice, appId, 'go', [{ identity: 'ada' }, { identity: 'eve' }]);
  await untilAllStored();
  const rows = await sluice.rows(
    `SELECT properties['fate'] AS fate, identity FROM events WHERE app_id = '${appId}' ORDER BY fate, identity`,
  );
  assert.deepEqual(
    rows.map(({ fate, identity }) => `${fate} ${identity}`),
    ['go ada', 'stay bob'],
  );
});

test('servers that all lost their disks accept records once the state was loaded again, and continue to do so', async () => {
  const producer = await newProducer(sluice);
  await until(
    async () => (await producer.send(sluice.baseUrl, [producer.nextEvent()])).outcome === 'acknowledged',
    'an event is acknowledged',
  );
  await untilAllStored();
  await until(async () => (await countUncopied()) === 0, 'ClickHouse has the registry');
  await Promise.all(redis.servers.map((server) => server.kill9()));
  for (const { dir } of redis.servers) rmSync(join(dir, 'appendonlydir'), { recursive: true });
  await Promise.all(redis.servers.map((server) => server.restart()));
  await redis.untilReplicated(2);
  await until(async () => (await sluice.admin('state', 'reload')) !== undefined, 'the state is loaded');
  const load = startLoad(producer, { targets: [sluice.baseUrl] });
  await whileRunning(load, () => load.more(300));
  await untilAllStored();
  await assertKept(sluice, producer);
  assert.equal(await readMetric(sluice.api[0] as ApiHandle, 'sluice_commits_lost_total'), 0);
});
