// Checks a Redis and a ClickHouse that run elsewhere: whether they answer, and whether Redis is configured to keep what it acknowledges.

import { setTimeout as pause } from 'node:timers/promises';
import { createLog } from '../../src/log.js';
import { Redis } from '../../src/packages/ioredis.js';
import { replicaFaults } from '../../src/redis/check-replicas.js';
import { connect, type RedisAddress, serversOf, untilReady } from '../../src/redis/client.js';
import { answersOk } from './children.js';
import { StartError } from './start-error.js';

/** How long a service that is being started at the same time may take to answer. */
const answerMsMax = 10_000;

/** Throws StartError when REDIS_URL does not answer; warns when the settings of a server can lose data. */
export async function checkOutsideRedis(address: RedisAddress, say: (line: string) => void): Promise<void> {
  const infos = await firstAnswer(
    () => (isOne(address) ? redisInfo(address.redisUrl) : infosOfAll(address, say)),
    'REDIS_URL: no Redis answers there',
  );
  if (!infos.every((info) => /^maxmemory_policy:noeviction\s*$/m.test(info))) {
    say('warning: the Redis at REDIS_URL may evict data: set maxmemory-policy noeviction there');
  }
  if (!infos.every((info) => /^aof_enabled:1\s*$/m.test(info))) {
    say(
      'warning: the Redis at REDIS_URL loses data when it ends: set appendonly yes, appendfsync always there',
    );
  }
}

/** Throws StartError when CLICKHOUSE_URL does not answer. */
export async function checkOutsideClickHouse(url: string): Promise<void> {
  const ping = new URL('ping', url.endsWith('/') ? url : `${url}/`);
  ping.username = '';
  ping.password = '';
  await firstAnswer(async () => {
    if (!(await answersOk(ping.href))) throw new Error('not ready');
  }, 'CLICKHOUSE_URL: no ClickHouse answers there');
}

function isOne({ redisCluster, redisSentinels, redisReplicasAck }: RedisAddress): boolean {
  return !redisCluster && redisSentinels === undefined && redisReplicasAck === 0;
}

/** The answers of every server of a cluster, or of a primary and its replicas. */
async function infosOfAll(address: RedisAddress, say: (line: string) => void): Promise<string[]> {
  const redis = connect(address, createLog('start', 'silent'));
  try {
    await untilReady(redis, 5_000);
    for (const fault of await replicaFaults(redis, address.redisReplicasAck)) say(`warning: ${fault}`);
    return await Promise.all(
      (await serversOf(redis)).map(
        async (server) => `${await server.info('memory')}${await server.info('persistence')}`,
      ),
    );
  } finally {
    redis.disconnect();
  }
}

async function redisInfo(url: string): Promise<string[]> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: null, connectTimeout: 5_000 });
  // The failed command only says that the connection is closed; this event says why.
  let cause: unknown;
  redis.on('error', (error) => {
    cause = error;
  });
  try {
    await redis.connect();
    return [`${await redis.info('memory')}${await redis.info('persistence')}`];
  } catch (error) {
    throw cause ?? error;
  } finally {
    redis.disconnect();
  }
}

async function firstAnswer<T>(ask: () => Promise<T>, otherwise: string): Promise<T> {
  const startedAt = performance.now();
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      const code = (error as { code?: string }).code ?? (error as Error).message;
      if (performance.now() - startedAt > answerMsMax) throw new StartError(`${otherwise} (${code})`);
      await pause(250);
    }
  }
}
