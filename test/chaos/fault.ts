// A fault: harm that is done to the deployment for a while. It reports whether it took effect.

import type { TestAccount } from '../harness/accounts.js';
import type { Loss } from '../harness/exactly-once.js';
import type { Producer } from '../harness/load.js';
import type { Broken } from './broken.js';
import type { AnyDeployment, Deployment } from './deployment.js';
import type { Link, ProcessPart } from './parts.js';
import type { Random } from './random.js';
import type { Sight } from './rows.js';
import type { Tool } from './tools.js';

/** The parts that a fault affects. Faults at the same time never share a part. */
export type Part = ProcessPart | Link | 'gate' | 'shards' | 'passes';

/** A loss of everything that only Redis held when it was emptied. */
export type Emptied = Loss & {
  /** When the state was restored. */
  toMs: number;
  /** The deletion requests of which ClickHouse had everything: these must come back and be completed. */
  readonly keptDeletions: ReadonlySet<string>;
};

/** What a round adds to its deployment. */
type Scene = {
  /** Sends to the account's main environment; faults that need special records send them through this producer. */
  readonly producer: Producer;
  readonly account: TestAccount;
  /** All environments that clients send to. */
  readonly appIds: readonly string[];
  readonly emptied: Emptied[];
  /** What ClickHouse lost when an older copy of it was put back, until it was recovered. */
  readonly setBack: Loss[];
  /** For how long in total Redis's clock stood still after it was set back. */
  clockStoodMs: number;
  /** Whether Redis's clock was moved, so that tokens and the like may have ended early. */
  clockMoved: boolean;
  /** For each loss of a primary, how long it took until a record that was sent after it was accepted. */
  readonly takeOversMs: number[];
  /** When the index of keys was lost, or only the keys of what was deleted since a copy of ClickHouse. */
  readonly indexLostMs: number[];
  readonly sights: Sight[];
  /** Promises that a fault itself saw broken. */
  readonly broken: Broken[];
  /** API processes that a fault killed, paused or restarted: their callers may get no answer. */
  readonly disturbedApis: Set<string>;
};

export type AnyWorld = AnyDeployment & Scene;
export type World = Deployment & Scene;

export type Fault<W extends AnyWorld = World> = {
  readonly name: string;
  readonly touches: readonly Part[];
  readonly needs?: Tool;
  /** Causes the fault, holds it and ends it. Settles with whether it took effect. */
  readonly run: (world: W, random: Random) => Promise<boolean>;
};

export function hold(ms: number): Promise<void> {
  return new Promise((settle) => setTimeout(settle, ms));
}
