// What the measurements of one session share: the deployment they load, how long and how often, and what came of
// them so far.

import type { Redis } from 'ioredis';
import type { Deployment } from './deployment.js';
import type { Options } from './options.js';
import type { Progress } from './progress.js';

export type Context = {
  readonly deployment: Deployment;
  /** Absent where the deployment runs elsewhere. */
  readonly redis: Redis | undefined;
  readonly options: Options;
  readonly progress: Progress;
};
