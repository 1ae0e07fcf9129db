// The state of one restore, and its checks before each irreversible step: if this process was paused, another one may have started a
// restore, or Redis may have been emptied.

import { BackupFailed } from '../../clickhouse/backup-faults.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import type { AllServers } from '../../clickhouse/servers.js';
import { readDatabaseId } from '../../clickhouse/staging.js';
import type { CrashPoint } from '../../crash-point.js';
import { registryKeys } from '../../redis/keys.js';
import type { Lease } from '../../redis/lease.js';
import type { AdminContext } from '../context.js';
import { type Plan, textOf } from './plan.js';

export type Restore = {
  readonly context: AdminContext;
  readonly name: string;
  /** Connections to the database in use on each server, and to the one beside it. */
  readonly servers: AllServers;
  readonly restored: AllServers;
  /** The name of the database beside the one in use. */
  readonly staging: string;
  readonly lock: Lease;
  readonly crash: CrashPoint;
  /** Loads the state of ClickHouse into an emptied Redis. */
  readonly load: () => Promise<unknown>;
};

export type Begun = Restore & {
  /** The id of the staging databases. */
  readonly id: string;
  /** Called before each statement that exchanges tables. */
  readonly exchanging: () => void;
  /** The epoch of the deployment in Redis; empty if there is none. */
  readonly epoch: string;
};

export type Planned = Begun & { readonly plan: Plan };

export class AnotherRestore extends BackupFailed {
  constructor() {
    super('another restore has started, or this one was paused for too long: run it again');
  }
}

export class RedisChanged extends BackupFailed {
  constructor() {
    super('Redis was emptied or loaded meanwhile: run it again');
  }
}

/**
 * Rejects with BackupFailed if another process is restoring too, or if Redis was emptied or loaded since the restore began. The id of the
 * staging database tells a process that its database was replaced, even if Redis was emptied.
 */
export async function confirm(restore: Begun): Promise<void> {
  const { context, lock, id, epoch } = restore;
  // The lock first: the checks that follow then see whatever another process did while it held the lock.
  if (!(await lock.isHeld())) throw new AnotherRestore();
  const isOwn = (await readStagingIds(restore)).every((each) => each === id);
  if (!isOwn) throw new AnotherRestore();
  if ((await readEpoch(context.redis)) !== epoch) throw new RedisChanged();
}

/**
 * Like `confirm`, and also rejects unless Redis still has the plan. A Redis that was emptied and loaded again has the same epoch, but
 * deletion rounds may have started in it.
 */
export async function confirmPlan(restore: Planned): Promise<void> {
  await confirm(restore);
  const text = await restore.context.redis.get(registryKeys.restoringBackup);
  if (text !== textOf(restore.plan)) throw new RedisChanged();
}

/**
 * Rejects with BackupFailed if this process may not drop a server's staging database. The database may already be gone. `id`: the only id
 * with which it may be dropped; undefined if it has to be gone.
 */
export async function confirmDrop(
  { staging, lock }: Restore,
  client: ClickHouseClient,
  id: string | undefined,
): Promise<void> {
  if (!(await lock.isHeld())) throw new AnotherRestore();
  const found = await readDatabaseId(client, staging);
  if (found !== undefined && found !== id) throw new AnotherRestore();
}

export function readStagingIds({ servers, staging }: Restore): Promise<readonly (string | undefined)[]> {
  return Promise.all(servers.map((client) => readDatabaseId(client, staging)));
}

export async function readEpoch(redis: AdminContext['redis']): Promise<string> {
  return (await redis.get(registryKeys.epoch)) ?? '';
}
