// A worker may start before the first start has created the deployment, or before Redis is there.

import type { Deployment } from '../src/accounts/documents.js';
import { readRegistry } from '../src/accounts/registry.js';
import { describeError, type Log } from '../src/log.js';
import { type Redis, untilReady } from '../src/redis/client.js';

const readyMsMax = 2_000;
const retryEveryMs = 500;

/** Settles with the deployment once Redis holds it, or with undefined if the process is to stop before. */
export async function waitForDeployment(
  redis: Redis,
  isStopping: () => boolean,
  log: Log,
): Promise<Deployment | undefined> {
  for (;;) {
    try {
      await untilReady(redis, readyMsMax);
      const { deployment } = await readRegistry(redis);
      if (deployment !== undefined) return deployment;
      log.warn('waiting for the state to be loaded');
    } catch (error) {
      log.warn({ error: describeError(error) }, 'waiting for redis');
    }
    if (isStopping()) return undefined;
    await new Promise((resolve) => setTimeout(resolve, retryEveryMs));
  }
}
