// Starts this machine's redis-server with the settings of a file in deploy/, but with its own port and data.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Redis } from '../../src/packages/ioredis.js';
import { freePort } from '../harness/free-port.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';

/** Starts Redis by a command; settles with the values of these settings. */
export async function readRedisSettings(
  [program = 'redis-server', ...args]: readonly string[],
  names: readonly string[],
  password?: string,
): Promise<Record<string, string>> {
  const dir = tempDir('configured-redis');
  const port = await freePort();
  const server = spawn(program, [...args, '--port', String(port), '--dir', dir, '--bind', '127.0.0.1'], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...(password === undefined ? {} : { REDISCLI_AUTH: password }) },
  });
  let output = '';
  server.stdout.on('data', (text) => {
    output += text;
  });
  const ended = once(server, 'exit');
  const redis = new Redis(port, {
    ...(password === undefined ? {} : { password }),
    lazyConnect: true,
    retryStrategy: null,
    maxRetriesPerRequest: 0,
  });
  redis.on('error', () => undefined);
  try {
    await until(async () => {
      if (server.exitCode !== null) throw new Error(output);
      if (redis.status !== 'ready') await redis.connect();
      return (await redis.ping()) === 'PONG';
    }, 'redis-server answers');
    const values = (await redis.config('GET', ...(names as [string]))) as string[];
    const found: Record<string, string> = {};
    for (let at = 0; at < values.length; at += 2) found[String(values[at])] = String(values[at + 1]);
    return found;
  } finally {
    redis.disconnect();
    server.kill('SIGKILL');
    await ended;
    removeTempDir(dir);
  }
}
