// Redis's own accounting: calls and µs of each command. Commands inside a script count by themselves, and again in the
// script's time.

import type { Redis } from 'ioredis';

export type CommandStats = Readonly<
  Record<string, { readonly calls: number; readonly microseconds: number }>
>;

export async function readCommandStats(redis: Redis): Promise<CommandStats> {
  const text = await redis.info('commandstats');
  const stats: Record<string, { calls: number; microseconds: number }> = {};
  for (const [, name, calls, microseconds] of text.matchAll(/^cmdstat_([^:]+):calls=(\d+),usec=(\d+)/gm)) {
    stats[name as string] = { calls: Number(calls), microseconds: Number(microseconds) };
  }
  return stats;
}

/** How often Redis began to rewrite its append-only file. A child process does that, and its CPU counts as Redis's. */
export async function countRewrites(redis: Redis): Promise<number> {
  return Number(/^aof_rewrites:(\d+)/m.exec(await redis.info('persistence'))?.[1] ?? Number.NaN);
}

/** The differences between two readings, costliest first. */
export function commandStatsBetween(before: CommandStats, after: CommandStats): CommandStats {
  return Object.fromEntries(
    Object.entries(after)
      .map(([name, { calls, microseconds }]) => {
        const earlier = before[name] ?? { calls: 0, microseconds: 0 };
        const added = { calls: calls - earlier.calls, microseconds: microseconds - earlier.microseconds };
        return [name, added] as const;
      })
      .filter(([, { calls }]) => calls > 0)
      .sort(([, a], [, b]) => b.microseconds - a.microseconds),
  );
}
