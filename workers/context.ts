// What all parts of a worker process need, once the deployment is known.

import type { ClickHouseClient } from '../src/clickhouse/client.js';
import type { Config } from '../src/config.js';
import type { CrashPoint } from '../src/crash-point.js';
import type { Log } from '../src/log.js';
import type { Redis } from '../src/redis/client.js';

export type WorkerContext = {
  readonly redis: Redis;
  /** The connection for BullMQ. */
  readonly queueRedis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly config: Config;
  readonly shards: number;
  readonly epoch: string;
  /** The deployment's secret, for keyed hashes. */
  readonly secret: string;
  readonly crash: CrashPoint;
  readonly log: Log;
};

/** What the work for one shard needs. `clickhouse`: the server that has the shard. */
export type ShardContext = Pick<WorkerContext, 'redis' | 'clickhouse' | 'crash' | 'log'> & {
  readonly shard: number;
};
