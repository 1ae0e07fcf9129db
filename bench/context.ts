// What the measurements of one session share: the deployment under load, its generator, durations and repetitions.

import type { Redis } from 'ioredis';
import type { Deployment } from './deployment/deployment.js';
import type { Wrk } from './load/wrk.js';
import type { Options } from './options.js';
import type { Progress } from './progress.js';

export type Context = {
  readonly deployment: Deployment;
  readonly redis: Redis;
  /** Undefined: it is not installed. */
  readonly wrk: Wrk | undefined;
  readonly options: Options;
  readonly progress: Progress;
};
