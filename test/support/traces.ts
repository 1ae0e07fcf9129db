// Searches Redis and disks for traces of something that was deleted or must never be kept.

import { type Dirent, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { withRedis } from '../harness/redis-client.js';

/** The keys of Redis that hold a text, in their names or values. */
export async function keysWith(sluice: { readonly redisUrl: string }, text: string): Promise<string[]> {
  return withRedis(sluice, async (redis) => {
    const found: string[] = [];
    for await (const keys of redis.scanStream({ count: 500 })) {
      for (const key of keys as string[]) {
        const dumped = await redis.dumpBuffer(key);
        if (dumped === null) continue;
        // DUMP compresses long strings, but is the only one to contain everything that a key has. So both are searched.
        const held = [key, dumped, await textOf(redis, key)].some((bytes) => bytes.includes(text));
        if (held) found.push(key);
      }
    }
    return found;
  });
}

/** Everything that a key holds; empty if it has expired meanwhile. */
export async function textOf(redis: Redis, key: string): Promise<string> {
  switch (await redis.type(key)) {
    case 'string':
      return (await redis.getBuffer(key))?.toString('latin1') ?? '';
    case 'hash':
      return JSON.stringify(await redis.hgetall(key));
    case 'list':
      return JSON.stringify(await redis.lrange(key, 0, -1));
    case 'set':
      return JSON.stringify(await redis.smembers(key));
    case 'zset':
      return JSON.stringify(await redis.zrange(key, '0', '-1'));
    case 'stream':
      return JSON.stringify(await redis.xrange(key, '-', '+'));
    default:
      return '';
  }
}

/** The files below a folder that hold one of these texts. */
export function filesWith(dir: string, texts: readonly string[]): string[] {
  return entriesBelow(dir)
    .filter(({ entry }) => entry.isFile())
    .flatMap(({ path }) =>
      unlessGone(() => {
        const bytes = readFileSync(path);
        return texts.filter((text) => bytes.includes(text)).map((text) => `${path}: ${text}`);
      }),
    );
}

/** Everything below a folder to which servers write. Files that vanish meanwhile are left out. */
export function entriesBelow(dir: string): { readonly path: string; readonly entry: Dirent }[] {
  return unlessGone(() => readdirSync(dir, { withFileTypes: true })).flatMap((entry) => {
    const path = join(dir, entry.name);
    return [{ path, entry }, ...(entry.isDirectory() ? entriesBelow(path) : [])];
  });
}

function unlessGone<T>(read: () => T[]): T[] {
  try {
    return read();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
