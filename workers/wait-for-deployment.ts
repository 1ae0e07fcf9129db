// A worker may start before the deployment has been created, or before Redis is reachable.

import type { ClickHouseClient } from '../src/clickhouse/client.js';
import { AdministrationError } from '../src/contract/errors.js';
import type { Log } from '../src/log.js';
import { type Redis, untilReady } from '../src/redis/client.js';
import type { Deployment } from '../src/registry/documents.js';
import { readRegistry } from '../src/registry/registry.js';
import { settleShardServers } from '../src/registry/shard-servers.js';

const readyMsMax = 2_000;
const retryEveryMs = 500;

/**
 * Settles with the deployment once Redis holds it and it is known which server has which shard, or with undefined if the process
 * has to stop first. Rejects with AdministrationError if CLICKHOUSE_URL does not match the deployment.
 */
export async function waitForDeployment(
  redis: Redis,
  clickhouse: ClickHouseClient,
  isStopping: () => boolean,
  log: Log,
): Promise<Deployment | undefined> {
  for (;;) {
    try {
      await untilReady(redis, readyMsMax);
      const { deployment } = await readRegistry(redis);
      if (deployment !== undefined) {
        await settleShardServers(redis, clickhouse, deployment.shards);
        return deployment;
      }
      log.warn('waiting for the state to be loaded');
    } catch (error) {
      if (error instanceof AdministrationError) throw error;
      log.warn({ error }, 'waiting for redis');
    }
    if (isStopping()) return undefined;
    await new Promise((resolve) => setTimeout(resolve, retryEveryMs));
  }
}
