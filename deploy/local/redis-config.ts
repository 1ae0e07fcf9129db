// Owns the configuration of the embedded Redis: which guarantees it is started with.

export type RedisSettings = {
  readonly port: number;
  readonly dir: string;
  readonly appendfsync: 'always' | 'everysec' | 'no';
  readonly memoryBytesMax: number;
};

/**
 * Returns the text of redis.conf. Every write goes to the append-only file before it is answered
 * (`appendfsync always`), a write beyond the memory limit is refused and nothing is ever evicted, and a tail
 * that a crash cut off is dropped at the next start instead of preventing it. Hashes that expire are freed
 * beside the commits. The file is written anew from 256 MB on.
 */
export function redisConfig(settings: RedisSettings): string {
  return [
    'bind 127.0.0.1',
    `port ${settings.port}`,
    'protected-mode yes',
    'daemonize no',
    `dir ${JSON.stringify(settings.dir)}`,
    'appendonly yes',
    `appendfsync ${settings.appendfsync}`,
    'aof-load-truncated yes',
    'auto-aof-rewrite-min-size 256mb',
    'save ""',
    `maxmemory ${settings.memoryBytesMax}`,
    'maxmemory-policy noeviction',
    'lazyfree-lazy-expire yes',
    'logfile ""',
    '',
  ].join('\n');
}
