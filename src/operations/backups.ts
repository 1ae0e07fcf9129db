// Backups of ClickHouse: making and listing them; restore/ restores them. With several servers, each makes a backup under the same name.
// The primary server makes its backup first: so the users of a deletion that is complete in it are gone from the others' backups too.

import { createHash } from 'node:crypto';
import {
  type Base,
  backupOf,
  backupStates,
  keysOfBackup,
  makeBackup,
  makeKeysBackup,
  markEnd,
} from '../clickhouse/backups.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { NoRoom } from '../clickhouse/definitions.js';
import { tablesOfSchema } from '../clickhouse/migrate.js';
import { reachableServers, serversOf } from '../clickhouse/servers.js';
import { BackupExists, BackupFailed, BackupMissing, readTableIds } from '../clickhouse/staging.js';
import type { Config } from '../config.js';
import { AdministrationError } from '../contract/errors.js';
import { backups } from '../contract/limits.js';
import { createCrashPoint } from '../crash-point.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { type Lease, withProcessLock } from '../redis/lease.js';
import { claimBackup, forgetBackup, noteBackup, readBackups } from '../registry/backups.js';
import type { Backup } from '../registry/documents.js';
import { copyChanges } from '../registry/outbox.js';
import { readRegistry, readTime } from '../registry/registry.js';
import { assertCurrent } from '../registry/witness.js';
import type { AdminContext } from './context.js';
import { isRestoring } from './restore/plan.js';

export type BackupView = Omit<Backup, 'tables'> & {
  readonly status: 'running' | 'complete' | 'unknown';
};

export type CreateOptions = {
  readonly name?: string | undefined;
  /** An earlier backup. The new backup holds only what has changed since then, and ends with it: a restore needs both. */
  readonly base?: string | undefined;
  readonly keepDays?: number | undefined;
};

/**
 * Makes a backup, or continues an interrupted one; settles when it is on the disks. Only one is made at a time: each looks whether there is
 * room before it begins.
 */
export async function createBackup(context: AdminContext, options: CreateOptions): Promise<BackupView> {
  const { redis, clickhouse, config } = context;
  checkPlainTables(config);
  const began = new Date(await readTime(redis));
  const { base, keepDays = backups.keepDays } = options;
  const name = checkName(options.name ?? began.toISOString().replaceAll(/[-:]|\.\d+/g, ''));
  if (base !== undefined) checkName(base);
  if (!(keepDays >= 1 && keepDays <= backups.keepDaysMax))
    throw new AdministrationError(`a backup is kept for 1 to ${backups.keepDaysMax} days`);
  const keepMs = keepDays * 24 * 60 * 60_000;
  await checkAllReachable(clickhouse);
  const made = await withProcessLock(redis, registryKeys.backupLock, async (lock) => {
    const moved = await movesEnded(redis);
    const tables = await tablesInUse(context);
    if (await isRestoring(context))
      throw new AdministrationError(
        'a backup is being restored, or its restore was interrupted: finish that first',
      );
    await checkNoOtherIsMade(clickhouse, name);
    // A server that was set back has users again that a restore would take for already deleted.
    await assertCurrent(redis, clickhouse);
    const from = base === undefined ? undefined : await keptBackup(redis, base);
    const endMs = Math.min(began.getTime() + keepMs, from ? Date.parse(from.keep_until) : Infinity);
    const claim: Backup = {
      name,
      began_at: began.toISOString(),
      keep_until: new Date(endMs).toISOString(),
      tables,
      ...(moved > 0 && { moved }),
    };
    const backup = await claimBackup(redis, claim);
    const isContinued = backup !== claim;
    // A default name may already belong to another backup, which began within the same second.
    if (backup.ended_at !== undefined || (isContinued && options.name === undefined))
      throw new AdministrationError(`there is already a backup ${name}`);
    return makeParts(context, backup, from, isContinued, lock);
  });
  if (made === 'locked') throw new AdministrationError('another process is making a backup');
  return made;
}

/** The entry of a backup on which another one is based. */
async function keptBackup(redis: Redis, name: string): Promise<Backup> {
  const found = (await readBackups(redis)).find((each) => each.name === name);
  if (found !== undefined) return found;
  throw new AdministrationError(`there is no backup ${name}, or it has ended: see "backup list"`);
}

/** Rejects with AdministrationError while a server makes another backup, which it continues after its process was killed. */
async function checkNoOtherIsMade(clickhouse: ClickHouseClient, name: string): Promise<void> {
  for (const client of serversOf(clickhouse).all)
    for (const [part, status] of await backupStates(client))
      if (status === 'CREATING_BACKUP' && part.split(/[./]/)[0] !== name)
        throw new AdministrationError(`ClickHouse is making the backup ${part}: wait until that is done`);
}

/**
 * Makes the missing parts of a backup. The registry already has its entry, so that the users of every deletion completed from now on are
 * kept.
 */
async function makeParts(
  context: AdminContext,
  backup: Backup,
  base: Backup | undefined,
  isContinued: boolean,
  lock: Lease,
): Promise<BackupView> {
  const { redis, clickhouse, config } = context;
  const { clickhouseDatabase: database } = config;
  const { name } = backup;
  const crash = createCrashPoint(config.crashAt);
  try {
    await copyChanges(redis, clickhouse);
    const makeFirst = async (client: ClickHouseClient, server: number) => {
      const makeFrom = (from: Base | undefined) =>
        makeBackup(client, database, backupOf(name, server), from, isContinued);
      if (base === undefined) return makeFrom(undefined);
      return makeFrom({ name: backupOf(base.name, server), beganAt: new Date(base.began_at) }).catch(
        (error: unknown) => {
          // A server that was added since the base was made makes a full backup.
          if (server > 0 && error instanceof BackupMissing) return makeFrom(undefined);
          throw error;
        },
      );
    };
    const make = async (client: ClickHouseClient, server: number) => {
      // The first part, made now or earlier, has what changed before this, so the second one does not copy it.
      const part = { name: backupOf(name, server), beganAt: new Date() };
      const first = await makeFirst(client, server);
      crash('rows_backed_up');
      return first + (await makeKeysBackup(client, database, part, isContinued));
    };
    const servers = serversOf(clickhouse).all;
    let bytes = 0;
    // One after another, since several may share the disk for backups.
    for (const [server, client] of servers.entries()) {
      bytes += await make(client, server);
      if (server === 0) crash('primary_backed_up');
    }
    if ((await movesEnded(redis)) !== (backup.moved ?? 0))
      throw new BackupFailed('a shard was moved meanwhile');
    const tables = await tablesInUse(context);
    if (backup.tables !== undefined && backup.tables !== tables)
      throw new BackupFailed('another backup was restored meanwhile');
    crash('parts_compared');
    await markEnd(servers[0], database, name, isContinued);
    crash('end_marked');
    const complete = { ...backup, ended_at: new Date().toISOString(), bytes };
    if (!(await noteBackup(redis, complete))) throw new BackupFailed('its entry in the registry is gone');
    return viewOf(complete, 'complete');
  } catch (error) {
    if (error instanceof BackupExists && isContinued)
      throw new AdministrationError(
        `the backup ${name} cannot be continued, since ClickHouse was restarted: make one with another name`,
      );
    if (!(error instanceof BackupFailed || error instanceof NoRoom)) throw error;
    // This process may have been paused, and another one may have continued the backup in the meantime.
    if (!(await lock.isHeld()) || !(await forgetBackup(redis, backup)))
      throw new AdministrationError(`another process has continued the backup ${name}: see "backup list"`);
    if (error instanceof BackupExists)
      throw new AdministrationError(
        `the disk for backups already has a backup ${name}: make one with another name`,
      );
    // ClickHouse has no statement that removes a backup.
    throw new AdministrationError(
      `the backup failed: ${error.message}; remove what was written of it from the disk for backups: the folders ${name} and ${name}.*`,
    );
  }
}

/**
 * Identifies the tables in use on all servers. A restore that exchanges tables during a backup would make it a mixture of two times.
 * Every restored table has a new id, so an unchanged result shows that there was no restore.
 */
async function tablesInUse({ clickhouse, config }: AdminContext): Promise<string> {
  const schema = tablesOfSchema();
  const ids: string[] = [];
  for (const client of serversOf(clickhouse).all)
    for (const [table, id] of await readTableIds(client, config.clickhouseDatabase))
      if (schema.has(table)) ids.push(id);
  return createHash('sha256').update(ids.join()).digest('hex').slice(0, 16);
}

function viewOf({ tables: _, ...backup }: Backup, status: BackupView['status']): BackupView {
  return { ...backup, status };
}

/**
 * Throws AdministrationError if ClickHouse keeps replicas of the tables: one replica's backup may lack rows that other replicas have, and
 * ClickHouse cannot restore replicated tables beside those in use.
 */
export function checkPlainTables({ clickhouseTables: tables }: Pick<Config, 'clickhouseTables'>): void {
  if (tables === 'replicated' || tables === 'shared')
    throw new AdministrationError(
      `Sluice does not back up or restore ${tables} tables: use ClickHouse's own backups (see "ClickHouse replicas" in the runbook)`,
    );
}

/** Rejects with AdministrationError if a server does not answer, and names it. */
export async function checkAllReachable(clickhouse: ClickHouseClient): Promise<void> {
  const servers = serversOf(clickhouse);
  const reachable = await reachableServers(servers, true);
  const away = servers.all.findIndex((_, server) => !reachable.has(server));
  if (away !== -1)
    throw new AdministrationError(
      `ClickHouse server ${away} (from 0) does not answer, and a backup covers all servers`,
    );
}

/** How many moves of shards have ended. Rejects with AdministrationError while one is running. */
async function movesEnded(redis: Redis): Promise<number> {
  const { shardServers } = await readRegistry(redis);
  checkNoMove(shardServers?.moves);
  return shardServers?.moved ?? 0;
}

/** Throws AdministrationError while a shard is being moved: its rows are then on two servers. */
export function checkNoMove(moves: readonly { readonly shard: number }[] = []): void {
  const [move] = moves;
  if (move !== undefined)
    throw new AdministrationError(
      `shard ${move.shard} is being moved to another server: finish that first (see "shards list")`,
    );
}

/**
 * The backups that are still kept. If `create` was interrupted, a backup is not complete even if ClickHouse has made all its parts: nothing
 * has checked that they belong together.
 */
export async function listBackups({ redis, clickhouse }: AdminContext): Promise<BackupView[]> {
  const servers = serversOf(clickhouse);
  const reachable = await reachableServers(servers);
  const [kept, ...states] = await Promise.all([
    readBackups(redis),
    ...servers.all.map((client, server) => (reachable.has(server) ? backupStates(client) : undefined)),
  ]);
  return kept.map((backup) => {
    const parts = states.flatMap((known, server) => {
      const first = backupOf(backup.name, server);
      return [known?.get(first), known?.get(keysOfBackup(first))];
    });
    if (backup.ended_at !== undefined) return viewOf(backup, 'complete');
    return viewOf(backup, parts.includes('CREATING_BACKUP') ? 'running' : 'unknown');
  });
}

export function checkName(name: string): string {
  if (!/^[\w-]+$/.test(name) || name.length > backups.nameCharactersMax) {
    throw new AdministrationError(
      `the name of a backup consists of up to ${backups.nameCharactersMax} letters, digits, dashes and underscores`,
    );
  }
  return name;
}
