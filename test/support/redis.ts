// A private redis-server for tests, configured as the embedded one is.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { redisConfig } from '../../deploy/local/redis-config.js';
import { readyRedisPid } from '../../deploy/local/redis-probe.js';
import { type Child, startChild } from './child.js';
import { freePort } from './free-port.js';
import { removeTempDir, tempDir } from './temp-dir.js';

export type RedisHandle = Child & {
  readonly url: string;
  readonly port: number;
  /** Holds `appendonlydir/`; kept over kill9 and restart, removed by `remove` or with the process. */
  readonly dir: string;
  /** Stops it and removes its data. */
  remove(): Promise<void>;
};

export type RedisOptions = {
  /**
   * `always` unless told. With `no` what was written still outlives the process, and no answer waits for a disk: for
   * tests of something else, since a disk that stands still for longer than a commit may take leaves its outcome open.
   */
  readonly appendfsync?: 'always' | 'everysec' | 'no';
  /** Bytes; 1 GiB unless told. */
  readonly maxmemory?: number;
  readonly port?: number;
  readonly dir?: string;
  /** More of its environment. */
  readonly env?: NodeJS.ProcessEnv;
  /** More lines of its redis.conf. */
  readonly more?: readonly string[];
};

/** Starts redis-server on a loopback port; settles when it has loaded its data and answers PING. */
export async function startRedis(options: RedisOptions = {}): Promise<RedisHandle> {
  const ownDir = options.dir === undefined;
  const dir = options.dir ?? tempDir('redis');
  mkdirSync(dir, { recursive: true });
  for (let attempt = 1; ; attempt += 1) {
    const port = options.port ?? (await freePort());
    const file = join(dir, 'redis.conf');
    const memoryBytesMax = options.maxmemory ?? 1024 ** 3;
    const config = redisConfig({ port, dir, appendfsync: options.appendfsync ?? 'always', memoryBytesMax });
    writeFileSync(file, [config, ...(options.more ?? []), ''].join('\n'));
    try {
      const child = await startChild({
        name: 'redis-server',
        program: { command: 'redis-server', args: [file], env: { ...process.env, ...options.env } },
        healthy: async ({ pid }) => (await readyRedisPid(port)) === pid,
        healthyDeadlineMs: 60_000,
      });
      return Object.defineProperties(child as RedisHandle, {
        url: { value: `redis://127.0.0.1:${port}` },
        port: { value: port },
        dir: { value: dir },
        remove: {
          value: async () => {
            await child.stop();
            if (ownDir) removeTempDir(dir);
          },
        },
      });
    } catch (error) {
      // Somebody else took the port between the look and the bind.
      const collided = String((error as Error).message).includes('Address already in use');
      if (!collided || options.port !== undefined || attempt === 5) throw error;
    }
  }
}
