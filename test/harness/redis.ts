// A private redis-server for tests, configured like the embedded one.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { redisConfig } from '../../deploy/local/redis-config.js';
import { readyRedisPid } from '../../deploy/local/redis-probe.js';
import { type Child, startChild } from './child.js';
import { freePort } from './free-port.js';
import type { Host } from './hosts.js';
import { removeTempDir, tempDir } from './temp-dir.js';

export type RedisHandle = Child & {
  readonly url: string;
  /** Path of the Unix socket on which it also listens. */
  readonly socket: string;
  readonly port: number;
  /** Holds `appendonlydir/`; kept over kill9 and restart, removed by `remove` or with the process. */
  readonly dir: string;
  /** Kills it and removes its data. */
  remove(): Promise<void>;
};

export type RedisOptions = {
  /**
   * `always` by default. With `no`, writes still survive the process, and no answer waits for a disk. Tests of other subjects use it,
   * because the outcome of a commit stays unknown if the disk stalls for longer than a commit may take.
   */
  readonly appendfsync?: 'always' | 'everysec' | 'no';
  /** Bytes; 1 GiB by default. */
  readonly maxmemory?: number;
  readonly port?: number;
  readonly dir?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Further lines of its redis.conf. */
  readonly more?: readonly string[];
  /** The host on which it runs; by default the test's own. */
  readonly host?: Host;
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
    const config = redisConfig({
      port,
      dir,
      hasSocket: true,
      appendfsync: options.appendfsync ?? 'always',
      memoryBytesMax,
    });
    const { host } = options;
    const ofHost = host === undefined ? [] : ['bind 0.0.0.0', 'protected-mode no'];
    writeFileSync(file, [config, ...ofHost, ...(options.more ?? []), ''].join('\n'));
    const program = { command: 'redis-server', args: [file], env: { ...process.env, ...options.env } };
    try {
      const child = await startChild({
        name: 'redis-server',
        program: host === undefined ? program : host.on(program),
        // A host may be cut off, so only the socket always reaches the server.
        healthy: async ({ pid }) =>
          (await readyRedisPid(host === undefined ? port : join(dir, 'redis.sock'))) === pid,
        healthyDeadlineMs: 60_000,
      });
      return Object.defineProperties(child as RedisHandle, {
        url: { value: `redis://${host?.ip ?? '127.0.0.1'}:${port}` },
        socket: { value: join(dir, 'redis.sock') },
        port: { value: port },
        dir: { value: dir },
        remove: {
          value: async () => {
            await child.kill9();
            if (ownDir) removeTempDir(dir);
          },
        },
      });
    } catch (error) {
      // Another process took the port between the check and the bind.
      const collided = String((error as Error).message).includes('Address already in use');
      if (!collided || options.port !== undefined || attempt === 5) throw error;
    }
  }
}
