// Writes of a primary of Redis that no replica confirms may be lost with it. They are not answered, loaded or copied to ClickHouse, and
// processes that follow the next primary do not know them.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { useAttempt } from '../../src/accounts/people/provider.js';
import { beginSession } from '../../src/accounts/people/sessions.js';
import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { createLog } from '../../src/log.js';
import { ReplyError, type Redis as Single } from '../../src/packages/ioredis.js';
import { listProposals, propose, withdrawProposal } from '../../src/privacy/deletion/proposals.js';
import { suppressNames } from '../../src/privacy/suppression/change.js';
import { createNameHasher } from '../../src/privacy/suppression/names.js';
import { followSuppressions } from '../../src/privacy/suppression/suppressions.js';
import { connect, type Redis, untilReady } from '../../src/redis/client.js';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { takeTurn } from '../../src/redis/lease.js';
import { NotOnReplicas, onReplicas } from '../../src/redis/replicas.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { followPrimary } from '../../src/redis/take-over.js';
import type { Deployment, Person } from '../../src/registry/documents.js';
import type { LiveEnvironment } from '../../src/registry/environments.js';
import { withLoading } from '../../src/registry/loading.js';
import { copyChanges } from '../../src/registry/outbox.js';
import { forgetKept } from '../../src/registry/witness-copies.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { ask, startRedisCluster } from '../harness/redis-cluster.js';
import { startRedisReplicas } from '../harness/redis-replicas.js';
import type { RedisHandle } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { epoch, loadShard } from '../support/shard.js';

const log = createLog('test', 'silent');
const open: { disconnect(): void }[] = [];
const servers: { remove(): Promise<void> }[] = [];

after(async () => {
  for (const connection of open) connection.disconnect();
  await Promise.all(servers.map((each) => each.remove()));
});

async function startPrimary(more: readonly string[]) {
  const own = await startRedisReplicas({ replicas: 1, more });
  servers.push(own);
  return own.servers as [RedisHandle, RedisHandle];
}

async function connectTo({ url }: RedisHandle): Promise<Redis> {
  const redis = connect({ redisUrl: url, redisCluster: false, redisReplicasAck: 1 }, log, 1_500);
  open.push(redis);
  await untilReady(redis, 30_000);
  return redis;
}

function connectBeside({ url }: RedisHandle): Single {
  const redis = connectTestRedis(url);
  open.push(redis);
  return redis;
}

test('changes that the replicas lack are not acknowledged, loaded or copied', async (context) => {
  const [first, replica] = await startPrimary(['min-replicas-to-write 0']);
  const redis = await connectTo(first);
  const inserted: unknown[] = [];
  const clickhouse = {
    insert: async (what: unknown) => inserted.push(what),
  } as unknown as ClickHouseClient;
  const loaded = withLoading(redis, 0, async (loading) => {
    replica.sigstop();
    await loading.write([['HSET', registryKeys.documents, 'account:7', '{}']]);
  });
  context.after(() => replica.sigcont());
  await assert.rejects(loaded, NotOnReplicas);

  await redis.set(registryKeys.epoch, epoch);
  await redis.hset(registryKeys.uncopiedSuppressions, '1', '1 7\nname|-\n\n');
  await redis.zadd(registryKeys.uncopied, 2, '1');
  await assert.rejects(copyChanges(redis, clickhouse), NotOnReplicas);
  assert.deepEqual(inserted, []);

  const by = {
    redis,
    secret: 'secret',
    accountId: '7',
    by: 'a',
    caseId: undefined,
    mayStill: async () => true,
  };
  const more = { reference: undefined, dryRun: false, suppress: false, eraseNow: false };
  await assert.rejects(propose(by, { list: ['iada'], ...more }), NotOnReplicas);
  const [proposal] = await listProposals(redis, '7');
  await assert.rejects(withdrawProposal(redis, '7', proposal?.proposal_id ?? ''), NotOnReplicas);
  const person = { person_id: 'p', email: 'ada@example.com' } as Person;
  await assert.rejects(beginSession(redis, person, { address: '', agent: '' }), NotOnReplicas);
  await assert.rejects(useAttempt(redis, { state: 'state', nonce: '', verifier: '' }), NotOnReplicas);
  await assert.rejects(forgetKept(redis, [0]), NotOnReplicas);
});

test('a command that was carried out does not count as refused because its confirmation was refused', async () => {
  const [first] = await startPrimary([]);
  const redis = await connectTo(first);
  const refused = () => Promise.reject(new ReplyError('NOREPLICAS Not enough good replicas to write.'));
  Object.assign(redis, { publish: refused });
  await assert.rejects(
    onReplicas(redis, 'key', async () => 'done'),
    NotOnReplicas,
  );
});

test('a full master of a cluster still grants turns, since work in a turn makes room', async () => {
  const cluster = await startRedisCluster({ count: 1, replicas: 1 });
  servers.push(cluster);
  const redis = connect({ redisUrl: cluster.url, redisCluster: true, redisReplicasAck: 1 }, log);
  open.push(redis);
  await untilReady(redis, 30_000);
  await ask(cluster.masters[0]?.port ?? 0, 'config', 'set', 'maxmemory', '1');
  assert.equal(await takeTurn(redis, shardKeys.tickTurn(0), 1_000), true);
});

test('a connection that does not ask who is the primary takes over as soon as that is possible', async () => {
  const [first, replica] = await startPrimary([]);
  const beside = connectBeside(first);
  await beside.set(registryKeys.epoch, epoch);
  replica.sigstop();
  try {
    await until(
      async () => (await ask(first.port, 'set', 'key', '')).startsWith('NOREPLICAS'),
      'the former primary refuses to write',
    );
    followPrimary(await connectTo(first), { deployment: () => ({ epoch, shards: 1 }), log });
    assert.equal(await beside.hget(registryKeys.primary, 'id'), null);
  } finally {
    replica.sigcont();
  }
  await until(() => beside.hget(registryKeys.primary, 'id'), 'the server is taken over');
});

test('after a take-over only a process that knows lost suppressions reads all of them again', async (context) => {
  const [first, second] = await startPrimary(['min-replicas-to-write 0']);
  const [former, next] = [connectBeside(first), connectBeside(second)];
  const deployment = () => ({ epoch, shards: 1, secret: 'secret' }) as Deployment;
  const suppress = (redis: Redis, identity: string) => {
    const name = createNameHasher('secret', '7').textOf({ identity });
    return suppressNames({ redis, epoch, shards: 1 }, '7', [[name, '-']]);
  };
  const takeOver = (redis: Redis, id: string) => {
    const { epoch: key, primary, version, suppressions, copyVersion, suppressionChanges } = registryKeys;
    const keys = [key, primary, version, suppressions, copyVersion, suppressionChanges];
    return runScript(redis, scripts.takeOverRegistry, keys, [epoch, id, 10, 60_000_000]);
  };
  const versionOf = async (redis: Redis) => Number(await redis.hget(registryKeys.suppressions, 'version'));
  /** A process's connection, which leads to the former primary and then to the next one. */
  let leadsTo = former;
  const moving = new Proxy(former, {
    get: (_, property) => {
      const value: unknown = Reflect.get(leadsTo, property, leadsTo);
      return typeof value === 'function' ? value.bind(leadsTo) : value;
    },
  });
  await former.set(registryKeys.epoch, epoch);
  await loadShard(former);
  await takeOver(former, 'first');
  await suppress(former, 'ada');
  await former.publish('all', '');
  assert.equal(await former.wait(1, 60_000), 1);
  await ask(second.port, 'replicaof', 'no', 'one');
  await suppress(former, 'eve');
  const knowing = await followSuppressions(moving, deployment, log);
  const other = await followSuppressions(next, deployment, log);
  const has = (known: typeof other, identity: string) =>
    known.of({ accountId: '7', appId: '70' } as LiveEnvironment)?.hasIdentity(identity) ?? false;
  context.after(() => {
    knowing.close();
    other.close();
  });
  assert.deepEqual([has(knowing, 'eve'), has(other, 'ada')], [true, true]);
  await ask(second.port, 'config', 'resetstat');
  assert.ok(await takeOver(next, 'second'));
  leadsTo = next;
  const latest = await versionOf(next);
  await until(
    () => knowing.version() === latest && other.version() === latest,
    'both processes know the new version',
  );
  assert.deepEqual([has(knowing, 'ada'), has(knowing, 'eve'), has(other, 'ada')], [true, false, true]);
  assert.match(await ask(second.port, 'info', 'commandstats'), /^cmdstat_hscan:calls=1,/m);
});
