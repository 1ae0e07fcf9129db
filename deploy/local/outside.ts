// Looks at the Redis and the ClickHouse that run elsewhere: whether they answer, and whether Redis is set up
// to keep what it acknowledges.

import { setTimeout as pause } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { answersOk } from './children.js';
import { StartError } from './start-error.js';

/** A service that is started at the same time may take this long to answer. */
const answerMsMax = 10_000;

/** Throws StartError when REDIS_URL does not answer; says so when its settings can lose data. */
export async function checkOutsideRedis(url: string, say: (line: string) => void): Promise<void> {
  const info = await firstAnswer(() => redisInfo(url), 'REDIS_URL: no Redis answers there');
  if (!/^maxmemory_policy:noeviction\s*$/m.test(info)) {
    say('warning: the Redis at REDIS_URL may evict data: set maxmemory-policy noeviction there');
  }
  if (!/^aof_enabled:1\s*$/m.test(info)) {
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

async function redisInfo(url: string): Promise<string> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: null, connectTimeout: 5_000 });
  // The failed command says only that the connection is closed; this says why.
  let cause: unknown;
  redis.on('error', (error) => {
    cause = error;
  });
  try {
    await redis.connect();
    return `${await redis.info('memory')}${await redis.info('persistence')}`;
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
