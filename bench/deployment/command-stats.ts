// Redis's own accounting: how many commands it has carried out, scripts and commands inside scripts alike.

import type { Redis } from 'ioredis';

export type CommandCounts = {
  /** Calls of scripts, of which each commit is one. */
  readonly scripts: number;
  /** The commands that store: inside scripts or by themselves. */
  readonly others: number;
  /** Rewrites of the append-only file that began: a child process makes them, and its CPU counts as Redis's. */
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
