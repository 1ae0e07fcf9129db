// Searches Redis and files for traces of what was deleted or must never be kept.

import { type Dirent, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { withRedis } from '../harness/redis-client.js';

export async function keysWith(sluice: { readonly redisUrl: string }, text: string): Promise<string[]> {
  return withRedis(sluice, async (redis) => {
    const found: string[] = [];
    for await (const keys of redis.scanStream({ count: 500 })) {
      for (const key of keys as string[]) {
        const dumped = await redis.dumpBuffer(key);
        if (dumped === null) continue;
        // Both forms are searched: only DUMP contains everything of a key, but it compresses long strings.
        const held = [key, dumped, await textOf(redis, key)].some((bytes) => bytes.includes(text));
        if (held) found.push(key);
      }
    }
    return found;
  });
}

/** The value of a key of any type as text; empty if the key has expired meanwhile. */
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

/** Lists the files below a folder that contain one of these texts, each with the text. */
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

/** Lists everything below a folder. Servers may be writing there, so files that vanish meanwhile are left out. */
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
