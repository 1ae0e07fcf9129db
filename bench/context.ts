// What the measurements of one session share: the deployment under load, durations and repetitions, and the results so
// far.

import type { Redis } from 'ioredis';
import type { Deployment } from './deployment/deployment.js';
import type { Options } from './options.js';
import type { Progress } from './progress.js';

export type Context = {
  readonly deployment: Deployment;
  /** Absent if the deployment runs elsewhere. */
  readonly redis: Redis | undefined;
  readonly options: Options;
  readonly progress: Progress;
};
