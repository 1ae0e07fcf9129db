// What one restore knows of itself, and how it finds before each step that cannot be undone that it is still the one: another process
// may have begun a restore, or Redis may have been emptied, while this one stood still.

import { BackupFailed } from '../../clickhouse/backup-faults.js';
import { type ClickHouseClient, tablesOf } from '../../clickhouse/client.js';
import { serversOf } from '../../clickhouse/servers.js';
import { readDatabaseId } from '../../clickhouse/staging.js';
import type { CrashPoint } from '../../crash-point.js';
import { registryKeys } from '../../redis/keys.js';
import type { Lease } from '../../redis/lease.js';
import type { AdminContext } from '../context.js';
import { type Plan, textOf } from './plan.js';

export type Restore = {
  readonly context: AdminContext;
  readonly name: string;
  /** The database beside the one in use, and a connection to it on each server, the home first. */
  readonly staging: string;
  readonly restored: readonly ClickHouseClient[];
  readonly lock: Lease;
  readonly crash: CrashPoint;
};

/** A restore that knows what it replaces, and where it has the restored tables. */
export type Begun = Restore & {
  /** The id of the databases beside those in use. */
  readonly id: string;
  /** The deployment that Redis has; empty if it has none. */
  readonly epoch: string;
};

/** A restore whose plan is noted. */
export type Planned = Begun & { readonly plan: Plan };

export class AnotherRestore extends BackupFailed {
  constructor() {
    super('another restore has begun, or this one stood still for too long: run it again');
  }
}

export class RedisChanged extends BackupFailed {
  constructor() {
    super('Redis was emptied or loaded meanwhile: run it again');
  }
}

/**
 * Rejects with BackupFailed if another process restores too, or if Redis was emptied or loaded since the restore began. The
 * database beside the one in use has an id, so a process whose database was replaced meanwhile notices that even if Redis was emptied.
 */
export async function confirm(restore: Begun): Promise<void> {
  const { context, lock, id, epoch } = restore;
  // The lock first: a process that takes it again sees what another one that had it has done meanwhile.
  if (!(await lock.isHeld())) throw new AnotherRestore();
  const isOwn = (await readStagingIds(restore)).every((each) => each === id);
  if (!isOwn) throw new AnotherRestore();
  if ((await readEpoch(context.redis)) !== epoch) throw new RedisChanged();
}

/**
 * The same, and that Redis still has the plan: a Redis that was emptied and loaded again has the same epoch, and rounds of deletions may
 * have begun in it.
 */
export async function confirmPlan(restore: Planned): Promise<void> {
  await confirm(restore);
  const noted = await restore.context.redis.get(registryKeys.restoringBackup);
  if (noted !== textOf(restore.plan)) throw new RedisChanged();
}

/**
 * Rejects with BackupFailed if the database beside the one in use is not this process's to drop from a server. It may be gone. `isOwn`
 * says so of its id.
 */
export async function confirmDrop(
  { staging, lock }: Restore,
  client: ClickHouseClient,
  isOwn: (id: string) => boolean,
): Promise<void> {
  if (!(await lock.isHeld())) throw new AnotherRestore();
  const id = await readDatabaseId(client, staging);
  if (id !== undefined && !isOwn(id)) throw new AnotherRestore();
}

export function readStagingIds({ context, staging }: Restore): Promise<readonly (string | undefined)[]> {
  const { all } = serversOf(context.clickhouse);
  return Promise.all(all.map((client) => readDatabaseId(client, staging)));
}

export async function readEpoch(redis: AdminContext['redis']): Promise<string> {
  return (await redis.get(registryKeys.epoch)) ?? '';
}

export function schemaOf(config: AdminContext['config']) {
  return { urls: config.clickhouseUrls, ...tablesOf(config) };
}
