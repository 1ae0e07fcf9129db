// Connections to Redis. The commit connection must never send a command twice by itself: a commit whose
// reply was lost is repeated by its owner, under the same sequence number.

import { Redis, type RedisOptions } from 'ioredis';
import type { Log } from '../log.js';

const shared: RedisOptions = {
  lazyConnect: false,
  connectTimeout: 1_000,
  // A connection given up is left at once: its peer may never say that it is closed.
  disconnectTimeout: 1,
  retryStrategy: (attempt) => Math.min(50 * attempt, 500),
  // Reconnects would otherwise run in-flight commands again: one INCR counted twice.
  autoResendUnfulfilledCommands: false,
  autoResubscribe: false,
};

/**
 * The connection of commits: fails at once when there is no connection, never queues, never resends, and
 * gives up a reply after `attemptMs` (without that a promise may never settle after a drop).
 */
export function connectForCommits(url: string, attemptMs: number, log: Log): Redis {
  return logged(
    new Redis(url, {
      ...shared,
      enableOfflineQueue: false,
      maxRetriesPerRequest: 0,
      commandTimeout: attemptMs,
    }),
    log,
  );
}

/**
 * A connection for everything that may be repeated: registry, worker scripts, health. A command that is not
 * answered within `commandMsMax` rejects; it may have run.
 */
export function connect(url: string, log: Log, commandMsMax = 5_000): Redis {
  return logged(
    new Redis(url, {
      ...shared,
      enableOfflineQueue: false,
      maxRetriesPerRequest: 0,
      commandTimeout: commandMsMax,
      // A connection that stays silent may stay so for a quarter of an hour; a new one may not.
      socketTimeout: commandMsMax,
    }),
    log,
  );
}

/** A connection for BullMQ, which needs blocking commands and its own patience. */
export function connectForQueue(url: string, log: Log): Redis {
  return logged(
    new Redis(url, {
      connectTimeout: 1_000,
      disconnectTimeout: 1,
      socketTimeout: 15_000,
      retryStrategy: shared.retryStrategy,
      maxRetriesPerRequest: null,
    }),
    log,
  );
}

/** A connection that only listens to channels; after a drop it listens to the same ones again. */
export function connectForMessages(url: string, log: Log): Redis {
  return logged(
    new Redis(url, {
      ...shared,
      maxRetriesPerRequest: 0,
      commandTimeout: 5_000,
      socketTimeout: 5_000,
      autoResubscribe: true,
    }),
    log,
  );
}

/** Settles when the connection is usable; rejects after `deadlineMs`. */
export async function ready(redis: Redis, deadlineMs: number): Promise<void> {
  if (redis.status === 'ready') return;
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      redis.off('ready', onReady);
      reject(new Error('Redis did not answer in time'));
    }, deadlineMs);
    const onReady = () => {
      clearTimeout(timer);
      resolve();
    };
    redis.once('ready', onReady);
  });
}

function logged(redis: Redis, log: Log): Redis {
  let reported = '';
  redis.on('error', (error: Error & { code?: string }) => {
    // The same fault comes with every attempt to reconnect; one line a change is enough.
    const fault = error.code ?? error.message;
    if (fault !== reported) log.warn({ fault }, 'redis connection fails');
    reported = fault;
  });
  redis.on('ready', () => {
    if (reported !== '') log.info('redis connection is back');
    reported = '';
  });
  return redis;
}
