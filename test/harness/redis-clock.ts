// A clock that a test sets and that the Redis scripts read. libfaketime cannot be used: it deadlocks with the allocator
// of Debian's Redis.

import type { Redis } from 'ioredis';
import { scripts } from '../../src/redis/scripts.js';

export type RedisClock = {
  /** The same connection, whose scripts read this clock. Redis still expires keys by the real clock. */
  readonly redis: Redis;
  /** Sets the clock, in milliseconds since 1970. */
  set(ms: number): Promise<void>;
};

const clockKey = '{s0}:clock_of_the_test';

/** Adds a clock that starts at the real time and stands still until it is set. */
export async function withRedisClock(redis: Redis): Promise<RedisClock> {
  const set = async (ms: number) => {
    await redis.hset(clockKey, 's', Math.floor(ms / 1000), 'us', Math.round((ms % 1000) * 1000));
  };
  await set(Date.now());
  const texts = new Map(
    Object.values(scripts).map(({ sha, text }) => [
      sha,
      text.replace(/(?:redis\.)?call\('TIME'\)/g, `redis.call('HMGET', '${clockKey}', 's', 'us')`),
    ]),
  );
  const redisWithClock = new Proxy(redis, {
    get(target, name) {
      if (name === 'evalsha') {
        return (sha: string, keys: number, ...args: (string | number | Buffer)[]) =>
          redis.eval(texts.get(sha) ?? '', keys, ...args);
      }
      const value = Reflect.get(target, name) as unknown;
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  return { redis: redisWithClock, set };
}
