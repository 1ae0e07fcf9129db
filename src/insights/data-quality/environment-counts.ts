// Counts of each environment, for its administrators: mendings in a lenient environment by their reason, ignored fields, requests
// without a write key, repeats that differ from the first record with their key, and records of suppressed users. Redis has one
// counter per environment and name. The process gathers counts and writes them once a second, so a crash loses a second of
// counts, but never a record.

import { type Mending, mendings } from '../../ingest/mend.js';
import { describeError, type Log } from '../../log.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';

const writeEveryMs = 1_000;

/** What is counted besides mendings. */
export type OtherCount = (typeof otherCounts)[number];
const otherCounts = ['ignored_fields', 'unauthorized', 'differing_repeats', 'suppressed'] as const;

export type EnvironmentCounts = {
  addMendings(appId: string, found: ReadonlyMap<Mending, number>): void;
  add(appId: string, name: OtherCount, count: number): void;
  /** Writes what is left. */
  close(): Promise<void>;
};

export function keepCountsIn(redis: Redis, log: Log): EnvironmentCounts {
  let pending = new Map<string, number>();

  async function write(): Promise<void> {
    if (pending.size === 0 || redis.status !== 'ready') return;
    const batch = pending;
    pending = new Map();
    const pipeline = redis.pipeline();
    for (const [field, count] of batch) pipeline.hincrby(registryKeys.counts, field, count);
    await pipeline.exec();
  }

  function add(appId: string, name: Mending | OtherCount, count: number): void {
    const field = `${appId}:${name}`;
    pending.set(field, (pending.get(field) ?? 0) + count);
  }

  const timer = setInterval(() => {
    write().catch((error: unknown) =>
      log.warn({ error: describeError(error) }, 'counts of environments are lost'),
    );
  }, writeEveryMs);
  return {
    addMendings: (appId, found) => {
      for (const [mending, count] of found) add(appId, mending, count);
    },
    add,
    close: async () => {
      clearInterval(timer);
      await write().catch((error: unknown) =>
        log.warn({ error: describeError(error) }, 'counts of environments are lost'),
      );
    },
  };
}

export type CountsOfEnvironment = {
  readonly mended: Readonly<Record<Mending, number>>;
} & Readonly<Record<OtherCount, number>>;

/** The counts of one environment; what never occurred is 0. */
export async function readEnvironmentCounts(redis: Redis, appId: string): Promise<CountsOfEnvironment> {
  const names = [...mendings, ...otherCounts];
  const counts = await redis.hmget(registryKeys.counts, ...names.map((name) => `${appId}:${name}`));
  const countOf = (name: (typeof names)[number]) => [name, Number(counts[names.indexOf(name)] ?? 0)];
  return {
    mended: Object.fromEntries(mendings.map(countOf)) as Record<Mending, number>,
    ...(Object.fromEntries(otherCounts.map(countOf)) as Record<OtherCount, number>),
  };
}
