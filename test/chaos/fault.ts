// What a fault is: something that is done to the deployment for a while, and says whether it took effect.

import type { TestAccount } from '../support/deletion.js';
import type { Producer } from '../support/load.js';
import type { Deployment } from './deployment.js';
import type { Random } from './random.js';
import type { Tool } from './tools.js';

/** What a fault takes hold of. Faults at the same time never share a part. */
export type Part =
  | 'api-1'
  | 'api-2'
  | 'worker-1'
  | 'worker-2'
  | 'redis'
  | 'clickhouse'
  | 'gate'
  | 'api-redis'
  | 'worker-redis'
  | 'worker-clickhouse';

/** What Redis alone held when it was emptied, and so may be gone. */
export type Emptied = {
  readonly fromMs: number;
  /** When the state was restored. */
  toMs: number;
  /** Of records that ClickHouse may not have had. */
  readonly markers: ReadonlySet<string>;
  /** Deletion requests that ClickHouse had with all that they need: these come back and are completed. */
  readonly keptDeletions: ReadonlySet<string>;
};

export type World = Deployment & {
  /** Sends to the account's main environment; faults that need special records send them through it. */
  readonly producer: Producer;
  /** Whose environments they are. */
  readonly account: TestAccount;
  readonly emptied: Emptied[];
  /** How long Redis's clock stood after it was set back, all times together. */
  clockStoodMs: number;
  /** Redis's clock was moved: what was to end later, tokens say, may have ended. */
  clockMoved: boolean;
  /** API processes that a fault ended, stopped or started anew: their callers may go without an answer. */
  readonly disturbedApis: Set<string>;
};

export type Fault = {
  readonly name: string;
  readonly touches: readonly Part[];
  readonly needs?: Tool;
  /** Does it, holds it and ends it. Settles with whether it took effect. */
  readonly run: (world: World, random: Random) => Promise<boolean>;
};

/** How long something is held. */
export function hold(ms: number): Promise<void> {
  return new Promise((settle) => setTimeout(settle, ms));
}
