// The set-up of tests of Redis faults: a deployment of which some processes reach Redis through a proxy. Call it while the test's file is
// loaded; it ends after the tests.

import { after } from 'node:test';
import { connectTestRedis } from '../harness/redis-client.js';
import { startRedis, startTcpProxy } from '../harness/services.js';
import { ownSluice } from './sluice.js';

/** `redis` is the test's own connection, which no proxy disturbs. */
export async function redisWorld(processes: 'apiEnv' | 'workerEnv', env: Record<string, string> = {}) {
  // These faults do not concern Redis's disk, and a slow disk must not decide the outcome of commits.
  const server = await startRedis({ appendfsync: 'no' });
  const proxy = await startTcpProxy({ port: server.port });
  const sluice = await ownSluice({
    redis: server,
    // Segments as in production: under load, each costs an insert.
    env: { JOB_LOCK_MS: '1000', SEGMENT_AGE_MS_MAX: '400' },
    [processes]: { REDIS_URL: `redis://127.0.0.1:${proxy.port}`, ...env },
  });
  const redis = connectTestRedis(server.url);
  after(async () => {
    redis.disconnect();
    await proxy.close();
    await server.remove();
  });
  return { server, proxy, sluice, redis };
}
