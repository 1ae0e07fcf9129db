// Backups of ClickHouse: making and listing them; restore-backup.ts restores them. With several servers, each makes one under the
// same name. The home comes first: what its backup calls a complete deletion is then gone from the backups of the others, too.

import { AdministrationError } from '../accounts/accounts.js';
import { claimBackup, forgetBackup, noteBackup, readBackups } from '../accounts/backups.js';
import type { Backup } from '../accounts/documents.js';
import { mirrorRegistry } from '../accounts/mirror.js';
import { readRegistry, readTime } from '../accounts/registry.js';
import {
  BackupFailed,
  BackupMissing,
  backupOf,
  backupStates,
  keysOfBackup,
  makeBackup,
  makeKeysBackup,
} from '../clickhouse/backups.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { serversOf, serversThere } from '../clickhouse/servers.js';
import type { Config } from '../config.js';
import { backups } from '../contract/limits.js';
import { createCrashPoint } from '../crash-point.js';
import { mirrorDeletions } from '../deletion/mirror.js';
import type { Redis } from '../redis/client.js';
import type { AdminContext } from './context.js';

export type BackupView = Backup & { readonly status: 'running' | 'complete' | 'unknown' };

export type CreateOptions = {
  readonly name?: string | undefined;
  /** A backup of which the new one holds only what has changed. */
  readonly base?: string | undefined;
  readonly keepDays?: number | undefined;
};

/**
 * Makes a backup, or continues one that was interrupted; settles when it is on the disks. It is noted first, so that no deletion
 * completes unnoticed meanwhile.
 */
export async function createBackup(context: AdminContext, options: CreateOptions): Promise<BackupView> {
  const { redis, clickhouse, config } = context;
  checkPlainTables(config);
  const crash = createCrashPoint(config.crashAt);
  const began = new Date(await readTime(redis));
  const { base, keepDays = backups.keepDays } = options;
  const name = checkName(options.name ?? began.toISOString().replaceAll(/[-:]|\.\d+/g, ''));
  if (base !== undefined) checkName(base);
  if (!(keepDays >= 1 && keepDays <= backups.keepDaysMax))
    throw new AdministrationError(`a backup is kept for 1 to ${backups.keepDaysMax} days`);
  const keepMs = keepDays * 24 * 60 * 60_000;
  await checkAllThere(clickhouse);
  const moved = await movesEnded(redis);
  const claim: Backup = {
    name,
    began_at: began.toISOString(),
    keep_until: new Date(began.getTime() + keepMs).toISOString(),
    ...(moved > 0 && { moved }),
  };
  const backup = await claimBackup(redis, claim);
  const isContinued = backup !== claim;
  // A default name may already belong to another backup, which began in the same second.
  if (backup.ended_at !== undefined || (isContinued && options.name === undefined))
    throw new AdministrationError(`there is a backup ${name}`);
  try {
    await mirrorRegistry(redis, clickhouse);
    await mirrorDeletions(redis, clickhouse);
    const makeFirst = async (client: ClickHouseClient, server: number) => {
      const makeFrom = (from: string | undefined) =>
        makeBackup(client, config.clickhouseDatabase, backupOf(name, server), from, isContinued);
      if (base === undefined) return makeFrom(undefined);
      return makeFrom(backupOf(base, server)).catch((error: unknown) => {
        // It was added since the base was made, so it makes a whole one.
        if (server > 0 && error instanceof BackupMissing) return makeFrom(undefined);
        throw error;
      });
    };
    const make = async (client: ClickHouseClient, server: number) => {
      const first = await makeFirst(client, server);
      crash('rows_backed_up');
      const keys = await makeKeysBackup(
        client,
        config.clickhouseDatabase,
        backupOf(name, server),
        isContinued,
      );
      return first + keys;
    };
    const [home, ...others] = serversOf(clickhouse).all as readonly [ClickHouseClient, ...ClickHouseClient[]];
    const sizes = [await make(home, 0)];
    crash('home_backed_up');
    sizes.push(...(await Promise.all(others.map((client, index) => make(client, index + 1)))));
    if ((await movesEnded(redis)) !== (backup.moved ?? 0))
      throw new BackupFailed('a shard was moved meanwhile');
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    const complete = { ...backup, ended_at: new Date().toISOString(), bytes };
    await noteBackup(redis, complete);
    return { ...complete, status: 'complete' };
  } catch (error) {
    if (!(error instanceof BackupFailed)) throw error;
    await forgetBackup(redis, backup);
    throw new AdministrationError(`the backup failed: ${error.message}`);
  }
}

/**
 * Throws AdministrationError where ClickHouse keeps replicas of the tables: a replica's backup may lack rows that the others have,
 * and ClickHouse does not restore replicated tables beside those in use.
 */
export function checkPlainTables({ clickhouseTables: tables }: Pick<Config, 'clickhouseTables'>): void {
  if (tables === 'replicated' || tables === 'shared')
    throw new AdministrationError(
      `Sluice makes and restores no backups of tables that are ${tables}: use ClickHouse's own backups (see "ClickHouse replicas" in the runbook)`,
    );
}

/** Rejects with AdministrationError, which names the server, if one of several does not answer. */
export async function checkAllThere(clickhouse: ClickHouseClient): Promise<void> {
  const servers = serversOf(clickhouse);
  const there = await serversThere(servers, true);
  const away = servers.all.findIndex((_, server) => !there.has(server));
  if (away !== -1)
    throw new AdministrationError(
      `ClickHouse server ${away} (from 0) does not answer: backups are of all servers`,
    );
}

/** How many moves of shards have ended. Rejects with AdministrationError while one is under way. */
async function movesEnded(redis: Redis): Promise<number> {
  const { shardServers } = await readRegistry(redis);
  checkNoMove(shardServers?.moves);
  return shardServers?.moved ?? 0;
}

/** The rows of a shard that is being moved are on two servers. */
export function checkNoMove(moves: readonly { readonly shard: number }[] = []): void {
  const [move] = moves;
  if (move !== undefined)
    throw new AdministrationError(
      `shard ${move.shard} is being moved to another server: let that be done first (shards list)`,
    );
}

/** The backups that are kept still. Of one whose `create` was cut off ClickHouse knows the rest, until it is restarted. */
export async function listBackups({ redis, clickhouse }: AdminContext): Promise<BackupView[]> {
  const servers = serversOf(clickhouse);
  const there = await serversThere(servers);
  const [noted, ...states] = await Promise.all([
    readBackups(redis),
    ...servers.all.map((client, server) => (there.has(server) ? backupStates(client) : undefined)),
  ]);
  return noted.map((backup) => {
    const parts = states.flatMap((known, server) => {
      const first = backupOf(backup.name, server);
      return [known?.get(first), known?.get(keysOfBackup(first))];
    });
    const isComplete = backup.ended_at !== undefined || parts.every((state) => state === 'BACKUP_CREATED');
    const isRunning = parts.includes('CREATING_BACKUP');
    return { ...backup, status: isComplete ? 'complete' : isRunning ? 'running' : 'unknown' };
  });
}

export function checkName(name: string): string {
  if (!/^[\w-]+$/.test(name) || name.length > backups.nameCharactersMax) {
    throw new AdministrationError(
      `the name of a backup is up to ${backups.nameCharactersMax} letters, digits, dashes and underscores`,
    );
  }
  return name;
}
