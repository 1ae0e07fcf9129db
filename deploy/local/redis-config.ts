// Owns the configuration of the embedded Redis, and thereby what Redis guarantees.

export type RedisSettings = {
  readonly port: number;
  readonly dir: string;
  /** The password that every connection has to send first; undefined for none. */
  readonly password?: string;
  /** Whether Redis also listens on `redis.sock` in its folder, for processes of the same user. */
  readonly hasSocket: boolean;
  readonly appendfsync: 'always' | 'everysec' | 'no';
  readonly memoryBytesMax: number;
};

/**
 * Returns the text of redis.conf. Every write goes to the append-only file before it is answered (`appendfsync always`). Redis refuses
 * writes beyond the memory limit and never evicts anything. If a crash cut off the end of the file, the next start drops that end instead
 * of failing. Expired hashes are freed in another thread. Redis rewrites the file from 1 GB on, uncompressed, since a rewrite takes a
 * second of CPU and more. It keeps commands nowhere else: the log of slow commands and crash reports are off, since they would contain
 * identities.
 */
export function redisConfig(settings: RedisSettings): string {
  return [
    'bind 127.0.0.1',
    `port ${settings.port}`,
    'protected-mode yes',
    'daemonize no',
    `dir ${JSON.stringify(settings.dir)}`,
    ...(settings.password === undefined ? [] : [`requirepass ${JSON.stringify(settings.password)}`]),
    ...(settings.hasSocket ? ['unixsocket redis.sock', 'unixsocketperm 700'] : []),
    'appendonly yes',
    `appendfsync ${settings.appendfsync}`,
    'aof-load-truncated yes',
    'auto-aof-rewrite-min-size 1gb',
    'rdbcompression no',
    'save ""',
    `maxmemory ${settings.memoryBytesMax}`,
    'maxmemory-policy noeviction',
    'lazyfree-lazy-expire yes',
    'slowlog-log-slower-than -1',
    'crash-log-enabled no',
    'logfile ""',
    '',
  ].join('\n');
}
