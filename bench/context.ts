// What the scenarios of one session share.

import type { Deployment } from './deployment/deployment.js';
import type { Options } from './options.js';
import type { Peers } from './peers/start.js';
import type { Progress } from './progress.js';

export type Context = {
  readonly deployment: Deployment;
  readonly peers: Peers;
  /** Whether wrk is installed. */
  readonly hasWrk: boolean;
  readonly options: Options;
  readonly progress: Progress;
};
