// The opening of tests of faults of Redis: a deployment of which some processes reach Redis by a proxy. Started while the test's file is
// loaded, and ended after its tests.

import { after } from 'node:test';
import { connectTestRedis } from '../harness/redis-client.js';
import { startRedis, startTcpProxy } from '../harness/services.js';
import { ownSluice } from './sluice.js';

/** `redis` is the test's own connection, which no proxy disturbs. */
export async function redisWorld(processes: 'apiEnv' | 'workerEnv', env: Record<string, string> = {}) {
  // These faults have nothing to do with Redis's disk, and a slow one must not decide about commits.
  const server = await startRedis({ appendfsync: 'no' });
  const proxy = await startTcpProxy({ port: server.port });
  const sluice = await ownSluice({
    redis: server,
    env: { JOB_LOCK_MS: '1000' },
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
