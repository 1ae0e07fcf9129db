// What the administration's commands work on.

import type { Redis } from 'ioredis';
import type { ClickHouseClient } from '../clickhouse/client.js';
import type { Config } from '../config.js';
import type { Log } from '../log.js';

export type AdminContext = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly config: Config;
  readonly log: Log;
};
