// What another server that becomes Redis's primary makes of the deployment's state, while the former one goes on beside it.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createLog } from '../../src/log.js';
import type { Redis as Single } from '../../src/packages/ioredis.js';
import { connect, type Redis, untilReady } from '../../src/redis/client.js';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { takeTurn } from '../../src/redis/lease.js';
import { NotOnReplicas } from '../../src/redis/replicas.js';
import { followPrimary } from '../../src/redis/take-over.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { ask } from '../harness/redis-cluster.js';
import { type RedisReplicasHandle, startRedisReplicas } from '../harness/redis-replicas.js';
import type { RedisHandle } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { commit, epoch, eventRecord, group, loadShard } from '../support/shard.js';

const log = createLog('test', 'silent');
let servers: RedisReplicasHandle;
const connections: (Redis | Single)[] = [];

before(async () => {
  // So that the former primary takes writes for the whole test.
  servers = await startRedisReplicas({ replicas: 2, more: ['min-replicas-to-write 0'] });
});

after(async () => {
  for (const connection of connections) connection.disconnect();
  await servers?.remove();
});

/** A process's connection to a server that it holds for the primary, once the state is that server's. */
async function openAsPrimary({ url }: RedisHandle): Promise<Redis> {
  const redis = connect({ redisUrl: url, redisCluster: false, redisReplicasAck: 1 }, log);
  connections.push(redis);
  await untilReady(redis, 5_000);
  const primary = followPrimary(redis, { deployment: () => ({ epoch, shards: 1 }), log });
  await until(() => primary.id() !== undefined, { deadlineMs: 20_000, what: 'the server is taken over' });
  return redis;
}

function openBeside({ url }: RedisHandle): Single {
  const redis = connectTestRedis(url);
  connections.push(redis);
  return redis;
}

async function openNumber(redis: Single): Promise<number> {
  const state = await redis.hgetall(shardKeys.state(0));
  const open = Object.keys(state).find((field) => field.startsWith('open.'));
  return Number(state[open ?? '']?.split(' ')[0] ?? 0);
}

const versions = async (redis: Single) => [
  Number(await redis.get(registryKeys.version)),
  Number(await redis.hget(registryKeys.suppressions, 'version')),
];

test('a new primary gives nothing that the former one may give beside it, and nobody has a turn at the former', async () => {
  const [first, second, third] = servers.servers as [RedisHandle, RedisHandle, RedisHandle];
  const former = openBeside(first);
  await former.mset(registryKeys.epoch, epoch, registryKeys.version, '5');
  await former.hset(registryKeys.suppressions, 'version', '7');
  await loadShard(former);
  const processOfFormer = await openAsPrimary(first);
  assert.deepEqual(await versions(former), [5, 7], 'the first primary took over from nobody');
  assert.equal(await commit(former, [group([eventRecord('a')])], { suppressionVersion: 7 }), 's');
  const number = await openNumber(former);
  assert.ok(number > 0);
  assert.equal(await takeTurn(processOfFormer, 'turn', 10), true);

  await ask(second.port, 'replicaof', 'no', 'one');
  await ask(third.port, 'replicaof', '127.0.0.1', String(second.port));
  const next = openBeside(second);
  const [member] = await next.zrange(shardKeys.segments(0), '0', '-1');
  const bytes = await next.get(`{s0}:segment:${member}`);
  await openAsPrimary(second);
  assert.equal(await openNumber(next), 0, 'what was open is sealed');
  const [version = 0, suppressions = 0] = await versions(next);
  assert.ok(version > 1_000 && suppressions > Date.now() * 1000 + 30e6);
  assert.equal(Number(await next.hget(registryKeys.suppressions, 'changes_from')), suppressions);

  // What the former primary gave to those who still reach it.
  await commit(former, [group([eventRecord('b')])], { suppressionVersion: 7 });
  assert.equal(await openNumber(former), number);
  assert.match(await commit(next, [group([eventRecord('c')])], { suppressionVersion: 7 }), /^v/);
  assert.equal(await commit(next, [group([eventRecord('c')])], { suppressionVersion: suppressions }), 's');
  assert.ok((await openNumber(next)) > number + 30e6);
  assert.equal(await next.get(`{s0}:segment:${member}`), bytes);
  await assert.rejects(takeTurn(processOfFormer, 'turn', 10), NotOnReplicas);

  // Another connection to the same primary changes nothing.
  const open = await openNumber(next);
  await openAsPrimary(second);
  assert.equal(await openNumber(next), open);
  assert.deepEqual(await versions(next), [version, suppressions]);
});
