// What the scenarios of one session share.

import type { Deployment } from './deployment/deployment.js';
import type { Options } from './options.js';
import type { Peers } from './peers/start.js';
import type { Progress } from './progress.js';

export type Context = {
  /** The deployments of the scenario, and the first of them. */
  readonly deployments: readonly Deployment[];
  readonly deployment: Deployment;
  readonly peers: Peers;
  /** The names of all scenarios that were requested. */
  readonly wanted: ReadonlySet<string>;
  /** Whether wrk is installed. */
  readonly hasWrk: boolean;
  readonly options: Options;
  readonly progress: Progress;
  /** Notes the failure of a part of a scenario that goes on without it. */
  readonly failed: (name: string, error: unknown) => void;
};
