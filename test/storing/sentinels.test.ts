// What counts as confirmed when replicas have confirmed a command but the sentinels name another primary. The servers of Redis are real;
// the sentinels are simulated, and answer when a test wants it.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { after, before, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { readConfig } from '../../src/config.js';
import { createLog } from '../../src/log.js';
import type { Redis as Single } from '../../src/packages/ioredis.js';
import { connect, type Redis, untilReady } from '../../src/redis/client.js';
import { findOrConfirmAbsence, NotOnReplicas, onReplicas, readOnReplicas } from '../../src/redis/replicas.js';
import { freePort } from '../harness/free-port.js';
import { type RedisReplicasHandle, startRedisReplicas } from '../harness/redis-replicas.js';
import { type RedisHandle, startRedis } from '../harness/services.js';
import { until, within } from '../harness/wait.js';

/** `replaced`: the server that the sentinel still describes while another one takes over. */
type View = { readonly port: number; readonly epoch: number; readonly replaced?: number };
type Sentinel = { view: View; answers(): Promise<unknown> | undefined };

/** A primary with its replica, and the server that the sentinels name next, which lacks everything that the replica confirms. */
let servers: RedisReplicasHandle;
let next: RedisHandle;
const sentinels: Sentinel[] = [];
const listening: Server[] = [];
const sockets: Socket[] = [];
let url = '';

before(async () => {
  servers = await startRedisReplicas({ replicas: 1 });
  next = await startRedis();
  const ports = [await freePort(), await freePort(), await freePort()];
  url = `redis-sentinel://${ports.map((port) => `127.0.0.1:${port}`).join()}/sluice`;
  for (const port of ports) listening.push(answerAsSentinel(port));
});

beforeEach(() => {
  for (const each of sentinels) Object.assign(each, { view: formerView(), answers: () => undefined });
});

after(async () => {
  for (const server of listening) server.close();
  for (const socket of sockets) socket.destroy();
  await servers?.remove();
  await next?.remove();
});

const formerView = (): View => ({ port: servers.servers[0]?.port ?? 0, epoch: 1 });
const nextView = (): View => ({ port: next.port, epoch: 2 });

function answerAsSentinel(port: number): Server {
  const sentinel: Sentinel = { view: formerView(), answers: () => undefined };
  sentinels.push(sentinel);
  const list = (...words: readonly string[]) =>
    `*${words.length}\r\n${words.map((word) => `$${word.length}\r\n${word}\r\n`).join('')}`;
  const answerTo = (command: string) => {
    const { view } = sentinel;
    if (/get-master-addr/i.test(command)) return list('127.0.0.1', `${view.port}`);
    if (!/\r\nmaster\r\n/i.test(command)) return '+OK\r\n';
    return list(
      'ip',
      '127.0.0.1',
      'port',
      `${view.replaced ?? view.port}`,
      'flags',
      view.replaced ? 'master,failover_in_progress' : 'master',
      'config-epoch',
      `${view.epoch}`,
    );
  };
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => undefined);
    socket.on('data', async (data) => {
      const text = String(data)
        .split(/(?=\*\d+\r\n)/)
        .map(answerTo)
        .join('');
      await sentinel.answers();
      if (socket.writable) socket.write(text);
    });
  });
  return server.listen(port, '127.0.0.1');
}

/** Settles when the connections to the sentinels have ended too. */
async function close(redis: Redis): Promise<void> {
  const ended = once(redis, 'end');
  redis.disconnect();
  await within(ended, 10_000);
}

/** Settles when a command is confirmed, and so the connections to the sentinels are made. */
async function untilConfirmed(redis: Redis): Promise<void> {
  const isConfirmed = () => onReplicas(redis, 'key', () => redis.set('key', '0')).catch(() => false);
  await until(isConfirmed, 'a command is confirmed');
}

async function open(): Promise<Redis> {
  const { redisUrl, redisCluster, redisSentinels } = readConfig({ REDIS_URL: url });
  const address = { redisUrl, redisCluster, redisSentinels, redisReplicasAck: 1 };
  const redis = connect(address, createLog('test', 'silent'));
  await untilReady(redis, 30_000);
  await untilConfirmed(redis);
  return redis;
}

test('nothing is confirmed while the only sentinel that knows the next primary has just become silent', async () => {
  const redis = await open();
  const [, , leader] = sentinels as [Sentinel, Sentinel, Sentinel];
  leader.view = nextView();
  leader.answers = () => pause(450);
  await assert.rejects(
    onReplicas(redis, 'key', () => redis.set('key', '1')),
    NotOnReplicas,
  );
  await close(redis);
});

test('nothing is confirmed for three seconds if a sentinel has never answered, since it may know the next primary', async () => {
  const [, , leader] = sentinels as [Sentinel, Sentinel, Sentinel];
  leader.view = nextView();
  leader.answers = () => new Promise(() => undefined);
  const began = performance.now();
  const redis = await open();
  assert.ok(performance.now() - began > 2_500);
  await close(redis);
});

test('a sentinel that stays silent counts as gone', async () => {
  const redis = await open();
  const [, , gone] = sentinels as [Sentinel, Sentinel, Sentinel];
  gone.answers = () => new Promise(() => undefined);
  await assert.rejects(
    onReplicas(redis, 'key', () => redis.set('key', '1')),
    NotOnReplicas,
  );
  await untilConfirmed(redis);
  await close(redis);
});

test('a confirmation by the former primary does not count at the next one, to which the connection then leads', async () => {
  const redis = await open();
  for (const each of sentinels) each.view = nextView();
  const [, , late] = sentinels as [Sentinel, Sentinel, Sentinel];
  // The sentinel answers the first question at once, and the second one when the connection has found the next primary.
  let asked = 0;
  late.answers = () => {
    asked += 1;
    return asked === 2 ? pause(250) : undefined;
  };
  const both = await Promise.allSettled(
    ['1', '2'].map((value) => onReplicas(redis, 'key', () => redis.set('key', value))),
  );
  for (const each of both) assert.ok(each.status === 'rejected' && each.reason instanceof NotOnReplicas);
  await close(redis);
});

test('a server that a sentinel has just made the primary is confirmed, though the sentinel still describes the former one', async () => {
  const redis = await open();
  const [leader] = sentinels as [Sentinel];
  leader.view = { ...formerView(), replaced: next.port };
  await untilConfirmed(redis);
  leader.view = { ...nextView(), replaced: formerView().port };
  await assert.rejects(
    onReplicas(redis, 'key', () => redis.set('key', '2')),
    NotOnReplicas,
  );
  await close(redis);
});

test('many callers who read keys that do not exist share confirmations', async () => {
  const redis = await open();
  const waits = async () =>
    Number(/cmdstat_wait:calls=(\d+)/.exec(await (redis as Single).info('commandstats'))?.[1]);
  const more = await until(async () => {
    const before = await waits();
    const asked = Array.from({ length: 100 }, () =>
      findOrConfirmAbsence(redis, 'absent', async () => (await redis.get('absent')) ?? undefined),
    );
    assert.ok((await Promise.all(asked)).every((found) => found === undefined));
    return (await waits()) - before;
  }, 'all are confirmed in time');
  assert.ok(more < 10, `${more} confirmations`);
  await close(redis);
});

test('a connection that is ended while it waits for its next attempt reports that, so the connections to its sentinels end too', async () => {
  const redis = (await open()) as Single;
  redis.disconnect(true);
  await until(() => redis.status === 'reconnecting', { everyMs: 1, what: 'it waits' });
  await close(redis);
});

test('a read that began at one primary is not confirmed by the next one', async () => {
  const redis = await open();
  for (const each of sentinels) each.view = { ...formerView(), epoch: 2 };
  const reading = readOnReplicas(redis, 'key', async () => {
    const value = await redis.get('key');
    (redis as Redis & { disconnect(again: boolean): void }).disconnect(true);
    await pause(100);
    await untilReady(redis, 30_000);
    return value;
  });
  await assert.rejects(reading, NotOnReplicas);
  await close(redis);
});
