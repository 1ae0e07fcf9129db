// Counts what lenient environments forgave, a counter an environment and reason, in Redis. Gathered in the
// process and written once a second: a crash loses a second of counts, never a record.

import { describeError, type Log } from '../log.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { type Mending, mendings } from './mend.js';

const writeEveryMs = 1_000;

export type MendingCounts = {
  count(appId: string, found: ReadonlyMap<Mending, number>): void;
  /** Writes what is left. */
  close(): Promise<void>;
};

export function countMendingsInto(redis: Redis, log: Log): MendingCounts {
  let pending = new Map<string, number>();

  async function write(): Promise<void> {
    if (pending.size === 0 || redis.status !== 'ready') return;
    const batch = pending;
    pending = new Map();
    const pipeline = redis.pipeline();
    for (const [field, count] of batch) pipeline.hincrby(registryKeys.mendings, field, count);
    await pipeline.exec();
  }

  const timer = setInterval(() => {
    write().catch((error: unknown) =>
      log.warn({ error: describeError(error) }, 'counts of mendings are lost'),
    );
  }, writeEveryMs);
  return {
    count: (appId, found) => {
      for (const [mending, count] of found) {
        const field = `${appId}:${mending}`;
        pending.set(field, (pending.get(field) ?? 0) + count);
      }
    },
    close: async () => {
      clearInterval(timer);
      await write().catch((error: unknown) =>
        log.warn({ error: describeError(error) }, 'counts of mendings are lost'),
      );
    },
  };
}

/** The counts of one environment by reason; reasons that never occurred are 0. */
export async function readMendingCounts(redis: Redis, appId: string): Promise<Record<Mending, number>> {
  const counts = await redis.hmget(
    registryKeys.mendings,
    ...mendings.map((mending) => `${appId}:${mending}`),
  );
  return Object.fromEntries(mendings.map((mending, i) => [mending, Number(counts[i] ?? 0)])) as Record<
    Mending,
    number
  >;
}
