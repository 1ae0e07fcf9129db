// What the measurements of one scenario share.

import type { Redis } from 'ioredis';
import type { Deployment } from './deployment.js';

export type Context = {
  readonly deployment: Deployment;
  readonly redis: Redis;
  /** Length of one run. */
  readonly seconds: number;
  /** Events acknowledged so far, by app_id: what ClickHouse must hold when all is over. */
  readonly acknowledged: Map<string, number>;
};
