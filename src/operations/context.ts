// What administrators' commands need.

import type { ClickHouseClient } from '../clickhouse/client.js';
import type { Config } from '../config.js';
import type { Log } from '../log.js';
import type { Redis } from '../redis/client.js';

export type AdminContext = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly config: Config;
  readonly log: Log;
  /** How long a change waits for its second copy; by default as long as a caller over HTTP waits. */
  readonly copyMsMax?: number;
};
