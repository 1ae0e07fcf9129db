// Reads large hashes in small pieces, so that no command keeps others waiting long.

import type { Redis } from './client.js';

/**
 * Yields about `count` fields at a time, with their values. A field may come twice; what is added or removed meanwhile may be missing.
 */
export async function* hashPieces(
  redis: Redis,
  key: string,
  count: number,
): AsyncGenerator<[field: string, value: string][]> {
  let cursor = '0';
  do {
    const [next, found] = await redis.hscan(key, cursor, 'COUNT', count);
    cursor = next;
    yield Array.from(
      { length: found.length / 2 },
      (_, i) => [found[2 * i], found[2 * i + 1]] as [string, string],
    );
  } while (cursor !== '0');
}
