// The list of ClickHouse's backups. It is a document of the registry, so it survives the loss of Redis or ClickHouse. While a backup is
// kept, hashes of the users that are deleted meanwhile are kept too (privacy/deletion/deleted-users.ts).

import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { deleteEqual } from '../redis/lease.js';
import { type Backup, backupsKey } from './documents.js';
import { type Change, changeRegistry, readDocument, readRegistry, readTime } from './registry.js';

/**
 * The backups that are still kept, the newest first. Redis's clock decides, since a worker's may be wrong. Throws StateNotLoaded when
 * Redis was emptied.
 */
export async function readBackups(redis: Redis): Promise<Backup[]> {
  const backups = await readDocument(redis, backupsKey);
  return backups === undefined ? [] : keptAt(backups, await readTime(redis));
}

/**
 * Records a new backup. From then on workers keep the hashes of the users that they delete. Settles with the entry of its name: if
 * there already was a backup of that name, its entry stays.
 */
export async function claimBackup(redis: Redis, backup: Backup): Promise<Backup> {
  const now = await readTime(redis);
  const noted = await changeRegistry(redis, ({ backups }) => {
    const kept = keptAt(backups, now);
    const other = kept.find(({ name }) => name === backup.name);
    if (other !== undefined) return { changes: [], result: other };
    return { changes: [noteAll([backup, ...kept])], result: backup };
  });
  if (noted === backup) {
    const key = registryKeys.deletedUsersSince(backup.name);
    await redis.set(key, backup.began_at, 'PX', Date.parse(backup.keep_until) - now);
  }
  return noted;
}

/** Whether Redis has the hashes of all users that were deleted since the backup with this name and this beginning. */
export async function keepsSince(redis: Redis, name: string, began: string): Promise<boolean> {
  return (await redis.get(registryKeys.deletedUsersSince(name))) === began;
}

/** Replaces the entry of a backup. Settles with whether it still existed. */
export async function noteBackup(redis: Redis, backup: Backup): Promise<boolean> {
  const now = await readTime(redis);
  return changeRegistry(redis, ({ backups }) => {
    const others = backups.filter((each) => !isSame(each, backup));
    if (others.length === backups.length) return { changes: [], result: false };
    return { changes: [noteAll(keptAt([backup, ...others], now))], result: true };
  });
}

function isSame(one: Backup, other: Backup): boolean {
  return one.name === other.name && one.began_at === other.began_at;
}

/**
 * Removes the entry of a failed backup; settles with whether it did. Another backup of that name stays, and so does this one if another
 * process has completed it since.
 */
export async function forgetBackup(redis: Redis, forgotten: Backup): Promise<boolean> {
  const { name, began_at, ended_at } = forgotten;
  const isCompleted = (backups: readonly Backup[]) =>
    backups.some((each) => isSame(each, forgotten) && each.ended_at !== ended_at);
  if (isCompleted((await readRegistry(redis)).backups)) return false;
  // The entry is removed last: while it exists, no other process sets the key.
  await deleteEqual(redis, registryKeys.deletedUsersSince(name), began_at);
  const now = await readTime(redis);
  return changeRegistry(redis, ({ backups }) => {
    if (isCompleted(backups)) return { changes: [], result: false };
    const others = backups.filter((each) => !isSame(each, forgotten));
    return { changes: [noteAll(keptAt(others, now))], result: true };
  });
}

function noteAll(backups: readonly Backup[]): Change {
  return { key: backupsKey, document: backups.toSorted((a, b) => b.began_at.localeCompare(a.began_at)) };
}

function keptAt(backups: readonly Backup[], now: number): Backup[] {
  return backups.filter((backup) => Date.parse(backup.keep_until) > now);
}
