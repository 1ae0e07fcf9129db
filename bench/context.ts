// What the scenarios of one session share.

import type { Deployment } from './deployment/deployment.js';
import type { Wrk } from './load/wrk.js';
import type { Options } from './options.js';
import type { Peers } from './peers/start.js';
import type { Progress } from './progress.js';

export type Context = {
  readonly deployment: Deployment;
  readonly peers: Peers;
  /** Undefined if wrk is not installed. */
  readonly wrk: Wrk | undefined;
  readonly options: Options;
  readonly progress: Progress;
};
