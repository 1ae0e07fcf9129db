// How another server that becomes Redis's primary changes the deployment's state, while the former one continues beside it.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { findSession } from '../../src/accounts/people/sessions.js';
import { callerOfToken, mintToken } from '../../src/accounts/tokens.js';
import { deletionCommands } from '../../src/admin/commands/deletions.js';
import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { readConfig } from '../../src/config.js';
import type { CommitResult } from '../../src/ingest/attempts.js';
import { createCommitter } from '../../src/ingest/commit.js';
import { createLog } from '../../src/log.js';
import type { Queue } from '../../src/packages/bullmq.js';
import type { Redis as Single } from '../../src/packages/ioredis.js';
import { tryCallback } from '../../src/privacy/deletion/callbacks.js';
import { readStored } from '../../src/privacy/deletion/fences.js';
import { listProposals as listed, propose, takeProposal } from '../../src/privacy/deletion/proposals.js';
import type { Submission } from '../../src/privacy/deletion/targets.js';
import {
  connect,
  connectForCommits,
  connectForQueue,
  type Redis,
  type RedisAddress,
  untilReady,
} from '../../src/redis/client.js';
import { registryKeys, segmentOfMember, shardKeys } from '../../src/redis/keys.js';
import { takeTurn } from '../../src/redis/lease.js';
import { leaveServer, NotOnReplicas } from '../../src/redis/replicas.js';
import { followPrimary } from '../../src/redis/take-over.js';
import type { Deployment } from '../../src/registry/documents.js';
import { createLosses } from '../../src/registry/losses.js';
import { storeSegment } from '../../workers/store.js';
import { tick } from '../../workers/tick.js';
import { canMakeHosts, createHosts, type Host } from '../harness/hosts.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { ask } from '../harness/redis-cluster.js';
import { type RedisReplicasHandle, startRedisReplicas } from '../harness/redis-replicas.js';
import { type RedisHandle, startTcpProxy } from '../harness/services.js';
import { until, within } from '../harness/wait.js';
import {
  commit,
  epoch,
  eventRecord,
  group,
  loadShard,
  noSuppressions,
  submissionOf,
} from '../support/shard.js';

const log = createLog('test', 'silent');
let servers: RedisReplicasHandle;
const connections: (Redis | Single)[] = [];

before(async () => {
  // With this setting the former primary accepts writes during the whole test.
  servers = await startRedisReplicas({ replicas: 2, more: ['min-replicas-to-write 0'] });
});

after(async () => {
  for (const connection of connections) connection.disconnect();
  await servers?.remove();
});

/** A process's connection to the server that it believes to be the primary; settles when the state was handed over to that server. */
async function openAsPrimary({ url }: RedisHandle): Promise<Redis> {
  const redis = connect({ redisUrl: url, redisCluster: false, redisReplicasAck: 1 }, log);
  connections.push(redis);
  await untilReady(redis, 30_000);
  const primary = followPrimary(redis, { deployment: () => ({ epoch, shards: 1 }), log });
  await until(() => primary.id(0) !== undefined, 'the server is taken over');
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

/** Settles when both replicas have everything. */
async function untilOnAll(redis: Single): Promise<void> {
  await redis.publish('all', '');
  assert.equal(await redis.wait(2, 60_000), 2);
}

const versions = async (redis: Single) => [
  Number(await redis.get(registryKeys.version)),
  Number(await redis.get(registryKeys.copyVersion)),
  Number(await redis.hget(registryKeys.suppressions, 'version')),
];

test('a new primary grants nothing that the former one may grant at the same time, and nobody has a turn at the former one', async () => {
  const [first, second, third] = servers.servers as [RedisHandle, RedisHandle, RedisHandle];
  const former = openBeside(first);
  await former.mset(registryKeys.epoch, epoch, registryKeys.version, '5', registryKeys.copyVersion, '6');
  await former.hset(registryKeys.suppressions, 'version', '7');
  await loadShard(former);
  const processOfFormer = await openAsPrimary(first);
  assert.deepEqual(await versions(former), [5, 6, 7], 'nothing was handed over to the first primary');
  assert.equal(await commit(former, [group([eventRecord('a')])], { suppressionVersion: 7 }), 's');
  const number = await openNumber(former);
  assert.ok(number > 0);
  await until(() => takeTurn(processOfFormer, 'turn', 10).catch(() => false), 'it has a turn');

  await untilOnAll(former);
  await ask(second.port, 'replicaof', 'no', 'one');
  await ask(third.port, 'replicaof', '127.0.0.1', String(second.port));
  const next = openBeside(second);
  const [member] = await next.zrange(shardKeys.segments(0), '0', '-1');
  const bytes = await next.get(`{s0}:segment:${member}`);
  await openAsPrimary(second);
  assert.equal(await openNumber(next), 0, 'the segment that was open is sealed');
  const [version = 0, copies = 0, suppressions = 0] = await versions(next);
  const nowUs = Date.now() * 1000;
  assert.ok(version > nowUs - 30e6 && copies > nowUs + 30e6 && suppressions > nowUs + 30e6);

  // The former primary still answers processes that reach it, but with a version of the suppressions that the next one refuses.
  await commit(former, [group([eventRecord('b')])], { suppressionVersion: 7 });
  assert.equal(await openNumber(former), number);
  assert.match(await commit(next, [group([eventRecord('c')])], { suppressionVersion: 7 }), /^v/);
  assert.equal(await commit(next, [group([eventRecord('c')])], { suppressionVersion: suppressions }), 's');
  assert.ok((await openNumber(next)) > number + 30e6);
  assert.equal(await next.get(`{s0}:segment:${member}`), bytes);
  await assert.rejects(takeTurn(processOfFormer, 'turn', 10), NotOnReplicas);
  const jobs: unknown[] = [];
  const storeQueue = { addBulk: async (some: unknown[]) => jobs.push(...some) } as unknown as Queue;
  const ticking = {
    redis: processOfFormer,
    storeQueue,
    shard: 0,
    epoch,
    segmentAgeMsMax: 0,
    jobsMax: () => 10,
  };
  const store = async () => jobs.push('stored');
  await assert.rejects(tick({ ...ticking, store, crash: () => undefined, log }), NotOnReplicas);
  assert.deepEqual(jobs, [], 'records that may be lost are not stored');
  const inserted: unknown[] = [];
  const clickhouse = {
    exec: async (insert: unknown) => inserted.push(insert),
  } as unknown as ClickHouseClient;
  const storing = { redis: processOfFormer, clickhouse, shard: 0, crash: () => undefined, log };
  await assert.rejects(storeSegment(storing, segmentOfMember(member ?? ''), true), NotOnReplicas);
  assert.deepEqual(inserted, [], 'nor are those in a segment that the next primary has closed');

  // Nobody believes the former primary about deletions either.
  const isStored = await readStored({ redis: processOfFormer, epoch, shards: 1 });
  assert.equal(isStored(0, '0'), false, 'only the former primary calls all of it stored');
  const context = { redis: processOfFormer } as never;
  const { showDeletion, listDeletions, listProposals } = deletionCommands;
  await assert.rejects(showDeletion.run(context, { deletion_request_id: 'any' } as never), NotOnReplicas);
  await assert.rejects(listDeletions.run(context, { account_id: '1' } as never), NotOnReplicas);
  await assert.rejects(listProposals.run(context, { account_id: '1' } as never), NotOnReplicas);
  await assert.rejects(tryCallback(processOfFormer, 'any', { isAllowed: () => true }), NotOnReplicas);
  const submission = {
    list: ['a'] as unknown as Submission['list'],
    reference: undefined,
    dryRun: false,
    suppress: false,
    eraseNow: false,
  };
  const proposing = { secret: 's', accountId: '1', caseId: undefined, mayStill: async () => true };
  await propose({ ...proposing, redis: former, by: 'one' }, submission);
  const taking = takeProposal({ ...proposing, redis: processOfFormer, by: 'other' }, submission);
  await assert.rejects(taking, NotOnReplicas);
  const proposals = await listed(former, '1');
  assert.equal(proposals.length, 1, 'a proposal stays until replicas confirm that it is taken');

  // Nobody believes it when it lacks a token, a session or a key.
  await assert.rejects(callerOfToken(processOfFormer, 'token'), NotOnReplicas);
  await assert.rejects(findSession(processOfFormer, 'secret'), NotOnReplicas);
  await assert.rejects(mintToken(processOfFormer, '1', 'key', 'network'), NotOnReplicas);

  // A further connection to the same primary changes nothing.
  const open = await openNumber(next);
  await openAsPrimary(second);
  assert.equal(await openNumber(next), open);
  assert.deepEqual(await versions(next), [version, copies, suppressions]);
});

test('a process whose primary has no replica that confirms asks the sentinels again', async (context) => {
  const own = await startRedisReplicas({ replicas: 1, sentinels: 3 });
  const { redisUrl, redisCluster, redisSentinels } = readConfig({ REDIS_URL: own.url });
  const address = { redisUrl, redisCluster, redisSentinels, redisReplicasAck: 1 };
  const redis = connect(address, log, 1_000);
  connections.push(redis);
  const replica = own.servers[1];
  context.after(async () => {
    replica?.sigcont();
    redis.disconnect();
    await own.remove();
  });
  await untilReady(redis, 30_000);
  await until(() => takeTurn(redis, 'turn', 10).catch(() => false), 'it has a turn');
  replica?.sigstop();
  const closed = once(redis, 'close');
  await assert.rejects(takeTurn(redis, 'other', 10), NotOnReplicas);
  await within(closed, 60_000);
  replica?.sigcont();
  await until(async () => takeTurn(redis, 'turn', 10).catch(() => false), 'it has a turn again');
});

test('connections follow sentinels that reach each other, not one that was cut off with a former primary', {
  skip: !canMakeHosts(),
}, async (context) => {
  const hosts = createHosts(3);
  const own = await startRedisReplicas({ replicas: 2, sentinels: 3, hosts: hosts.all });
  const { redisUrl, redisCluster, redisSentinels } = readConfig({ REDIS_URL: own.url });
  const address = { redisUrl, redisCluster, redisSentinels };
  const confirmed = connect({ ...address, redisReplicasAck: 1 }, log);
  const opened = [connect(address, log), connectForQueue(address, log), confirmed];
  const leadsTo = (redis: Redis) => (redis as Single & { stream?: Socket }).stream?.remoteAddress;
  context.after(async () => {
    for (const redis of opened) redis.disconnect();
    await own.remove();
    hosts.remove();
  });
  const [former, ...others] = hosts.all as [Host, Host, Host];
  for (const redis of opened) {
    await untilReady(redis, 30_000);
    assert.equal(leadsTo(redis), former.ip);
  }
  for (const other of others) former.cutFrom(other);
  await until(async () => (await own.primary()) !== own.servers[0], 'another server is the primary');
  // One connection to the former primary may have been under way.
  const seen = opened.map((redis) => {
    const places: (string | undefined)[] = [];
    redis.on('ready', () => places.push(leadsTo(redis)));
    return places;
  });
  for (const redis of opened) {
    // A process looks for the primary again when the server refuses or does not answer.
    const looks = async () => {
      await redis.set('looked', '1').catch(() => leaveServer(redis));
      return redis.status === 'ready' && others.some(({ ip }) => ip === leadsTo(redis));
    };
    await until(looks, 'the connection leads to the new primary');
  }
  for (const places of seen)
    assert.ok(places.filter((place) => place === former.ip).length <= 1, places.join());
  // The sentinel that was cut off still names the former primary, and does not count.
  await until(
    () => takeTurn(confirmed, 'turn', 10).catch(() => false),
    'the sentinels confirm the new primary',
  );
});

/**
 * Makes a commit in one process, loses some of it while another server becomes the primary, and then commits there, unless the process is
 * quiet. Settles with both results and which part of its commits the process calls lost.
 */
async function commitBesideLoss(
  more: Partial<RedisAddress>,
  lose: (redis: Single) => Promise<unknown>,
  isQuiet = false,
) {
  const own = await startRedisReplicas({ replicas: 2 });
  const [first, second, third] = own.servers as [RedisHandle, RedisHandle, RedisHandle];
  const target = { port: first.port };
  const way = await startTcpProxy(target);
  const redisUrl = `redis://127.0.0.1:${way.port}`;
  const address = { redisUrl, redisCluster: false, redisReplicasAck: 1, ...more };
  const deployment = () => ({ epoch, shards: 1 }) as Deployment;
  const commits = connectForCommits(address, log);
  const others = connect(address, log);
  const [next] = [openBeside(second)];
  connections.push(commits, others);
  try {
    const former = openBeside(first);
    await former.set(registryKeys.epoch, epoch);
    await loadShard(former);
    await untilReady(commits, 30_000);
    const losses = createLosses(others, deployment, log);
    const committer = createCommitter({
      redis: commits,
      primary: followPrimary(commits, { deployment, log }),
      onLost: (lost) => losses.note(0, lost),
      shard: 0,
      suppressions: { ...noSuppressions, version: () => Number.MAX_SAFE_INTEGER },
      epoch,
      backlogBytesMax: 1e9,
      segmentBytesMax: 1e6,
      segmentAgeMsMax: 1e6,
      crash: () => undefined,
      log,
    });
    let made = 0;
    const submit = () => {
      made += 1;
      return new Promise<CommitResult | undefined>((settle) =>
        committer.submit(submissionOf(group([eventRecord('a')])), ([result]) => settle(result)),
      );
    };
    const before = await until(async () => {
      const result = await submit();
      return result?.kind === 'committed' && result;
    }, 'a commit is confirmed');
    const madeBefore = made;
    await untilOnAll(former);
    await ask(second.port, 'replicaof', 'no', 'one');
    await ask(third.port, 'replicaof', '127.0.0.1', String(second.port));
    await until(
      async () => (await ask(second.port, 'info', 'replication')).includes('state=online'),
      'the new primary has a replica',
    );
    await lose(next as Single);
    target.port = second.port;
    way.reset();
    let after: CommitResult | undefined;
    const deadline = { deadlineMs: 60_000, what: 'the new primary answers' };
    const isAnswered = async () => {
      if (isQuiet) return losses.commits() > 0;
      after = await submit();
      // A commit that was under way as the former connection ended has an unknown outcome, and is repeated.
      return (
        after?.kind === 'committed' || (after?.kind === 'overloaded' && after.reason === 'state_not_loaded')
      );
    };
    await until(isAnswered, deadline);
    await until(async () => others.status === 'ready', 'a connection');
    // Those that a busy machine did not confirm in time are lost too.
    const lost = losses.commits() / madeBefore;
    return { before, after, lost, holds: (await next?.get(registryKeys.epoch)) === epoch };
  } finally {
    commits.disconnect();
    others.disconnect();
    await way.close();
    await own.remove();
  }
}

const stored: CommitResult = { kind: 'committed', letters: 's' };
const loseCommit = (redis: Single) => redis.del(shardKeys.answers(0));

test('a new primary that has all commits continues', async () => {
  const found = await commitBesideLoss({}, async () => undefined);
  assert.deepEqual(found, { before: stored, after: stored, lost: 0, holds: true });
});

test('a new primary that lacks acknowledged commits counts as emptied, and their number is reported', async () => {
  const found = await commitBesideLoss({}, loseCommit);
  const after: CommitResult = { kind: 'overloaded', reason: 'state_not_loaded' };
  assert.deepEqual(found, { before: stored, after, lost: 1, holds: false });
});

test('a process that no longer commits notices the loss too', async () => {
  const found = await commitBesideLoss({}, loseCommit, true);
  assert.deepEqual(found, { before: stored, after: undefined, lost: 1, holds: false });
});

test('once the state was loaded again, a process that had been silent reports no new loss', async () => {
  const found = await commitBesideLoss({}, async (redis) => {
    // Leaves the state of a loss that another process noticed: the primary was set aside, and then loaded again.
    for (const process of await redis.hkeys(shardKeys.answers(0)))
      await redis.hset(shardKeys.answers(0), process, '0 0 *');
    await redis.hdel(shardKeys.state(0), 'epoch');
    await loadShard(redis, 0, '0', 64, 'again');
  });
  assert.deepEqual(found, { before: stored, after: stored, lost: 0, holds: true });
});

test('with REDIS_LOSS=go-on a primary that lacks commits is used, and the loss is still reported', async () => {
  const found = await commitBesideLoss({ redisLoss: 'go-on' }, loseCommit);
  assert.deepEqual(found, { before: stored, after: stored, lost: 1, holds: true });
});

test('a connection that hears of a take-over while it looks for the primary still connects to it', async (context) => {
  const own = await startRedisReplicas({ replicas: 1, sentinels: 1 });
  const { redisUrl, redisCluster, redisSentinels } = readConfig({ REDIS_URL: own.url });
  const redis = connectForQueue({ redisUrl, redisCluster, redisSentinels }, log) as Single;
  type Detector = { readonly sentinels: readonly { readonly client: Single }[] };
  const { connector } = redis as unknown as {
    readonly connector: {
      resolve(...asked: unknown[]): Promise<unknown>;
      readonly failoverDetector: Detector;
    };
  };
  context.after(async () => {
    redis.disconnect();
    await own.remove();
  });
  await untilReady(redis, 10_000);
  await until(() => connector.failoverDetector?.sentinels[0]?.client.status === 'ready', {
    deadlineMs: 20_000,
    what: 'the connection listens to the sentinel',
  });
  const [{ client }] = connector.failoverDetector.sentinels as [{ readonly client: Single }];
  const resolve = connector.resolve.bind(connector);
  let looks = 0;
  connector.resolve = async (...asked) => {
    looks += 1;
    if (looks === 1) client.emit('message', '+switch-master', '');
    return resolve(...asked);
  };
  await ask(own.servers[0]?.port ?? 0, 'client', 'kill', 'type', 'normal');
  await until(() => looks > 0 && redis.status === 'ready', {
    deadlineMs: 20_000,
    what: 'the connection is ready again',
  });
  assert.equal(await redis.ping(), 'PONG');
});
