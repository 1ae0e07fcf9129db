// How many scripts and commands Redis has executed, by its own count.

import type { Redis } from 'ioredis';

export type CommandCounts = {
  /** Script calls; each commit is one. */
  readonly scripts: number;
  /** All other commands but INFO, inside scripts or outside. */
  readonly others: number;
  /** Rewrites of the append-only file that began. A child process does them; its CPU counts as Redis's. */
  readonly rewrites: number;
};

export async function readCommandCounts(redis: Redis): Promise<CommandCounts> {
  let scripts = 0;
  let others = 0;
  for (const [, name, calls] of (await redis.info('commandstats')).matchAll(
    /^cmdstat_([^:]+):calls=(\d+)/gm,
  )) {
    if (name === 'evalsha') scripts += Number(calls);
    else if (name !== 'info') others += Number(calls);
  }
  const rewrites = /^aof_rewrites:(\d+)/m.exec(await redis.info('persistence'))?.[1];
  return { scripts, others, rewrites: Number(rewrites ?? Number.NaN) };
}
