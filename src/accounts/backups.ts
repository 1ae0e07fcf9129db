// Which backups of ClickHouse there are. One document of the registry lists them, so the list outlives both Redis and ClickHouse.
// As long as a backup is kept, hashes of the users that are deleted meanwhile are kept too (deletion/deleted-users.ts).

import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { type Backup, backupsKey } from './documents.js';
import { changeRegistry } from './registry.js';

/** The backups that are still kept, the newest first. */
export async function readBackups(redis: Redis, now = Date.now()): Promise<Backup[]> {
  const text = await redis.hget(registryKeys.documents, backupsKey);
  return text === null ? [] : keptAt(JSON.parse(text) as Backup[], now);
}

/** Adds a backup, or replaces its note, and forgets backups whose time is over. */
export async function noteBackup(redis: Redis, backup: Backup): Promise<void> {
  await change(redis, (backups) => [backup, ...backups.filter(({ name }) => name !== backup.name)]);
}

export async function forgetBackup(redis: Redis, name: string): Promise<void> {
  await change(redis, (backups) => backups.filter((backup) => backup.name !== name));
}

async function change(redis: Redis, decide: (backups: Backup[]) => Backup[]): Promise<void> {
  await changeRegistry(redis, ({ backups }) => {
    const document = keptAt(decide([...backups]), Date.now()).sort((a, b) =>
      b.began_at.localeCompare(a.began_at),
    );
    return { changes: [{ key: backupsKey, document }], result: undefined };
  });
}

function keptAt(backups: readonly Backup[], now: number): Backup[] {
  return backups.filter((backup) => Date.parse(backup.keep_until) > now);
}
