// Every change of a definition: CREATE, ALTER of constraints and the like, RENAME and EXCHANGE. ClickHouse keeps each definition in a
// small file that it rewrites. On a full disk it may answer OK and leave an empty file; after a restart it cannot read the file, and the
// whole database is unusable. So definitions are changed only if the disk has room, and are read back from the file afterwards.
// Statements that only drop need no room. What changes while the service runs is kept in rows instead (`shard-limits.ts`).

import { Unavailable } from '../contract/errors.js';
import { definitions } from '../tuning.js';
import { readRow } from './answers.js';
import type { ClickHouseClient } from './client.js';
import { databaseIn, hasReplicas, onAllReplicas } from './replication.js';

const MiB = 1024 * 1024;

type Disk = 'default' | 'backups';

/** ClickHouse's disk has too little room. Nothing was changed; try again when there is room. */
export class NoRoom extends Unavailable {
  constructor(what: string, disk: Disk, freeBytes: number, bytesMin: number) {
    super(
      `ClickHouse's disk ${disk === 'backups' ? 'for backups ' : ''}has ${Math.floor(freeBytes / MiB)} MiB free, but ${what} needs ${Math.ceil(bytesMin / MiB)} MiB: make room on it`,
    );
  }
}

/** The file of a changed definition cannot be read: ClickHouse knows the definition only until it is restarted. */
export class DefinitionLost extends Error {}

export class MigrationError extends Error {}

/**
 * Rejects with NoRoom unless ClickHouse, on each replica, has this much room on the disk of its definitions, or on another of its disks.
 */
export async function assertRoom(
  client: ClickHouseClient,
  what: string,
  bytesMin: number,
  disk: Disk = 'default',
): Promise<void> {
  const row = await readRow<{ free: string; disks: string }>(client, {
    // A disk without a limit is not listed.
    query: `SELECT toString(min(unreserved_space)) AS free, toString(count()) AS disks
      FROM ${onAllReplicas(client, 'system.disks')} WHERE name = {disk:String}`,
    query_params: { disk },
  });
  if (row.disks !== '0' && Number(row.free) < bytesMin)
    throw new NoRoom(what, disk, Number(row.free), bytesMin);
}

/**
 * Runs statements that write definitions, of a few kilobytes together. `changed`: the tables and views whose definitions they write, with
 * their database unless it is the connection's. Rejects with NoRoom before the first statement, or with DefinitionLost after the last.
 */
export async function changeDefinition(
  client: ClickHouseClient,
  changed: readonly string[],
  ...queries: readonly string[]
): Promise<void> {
  await assertRoom(client, 'a change of a definition', definitions.roomBytesMin);
  for (const query of queries) await client.command({ query });
  await assertWritten(client, changed);
}

/**
 * Runs a statement that creates a database or, as `DATABASE.TABLE`, a table unless it is there. What is there needs no room: a deployment
 * that has stopped on a full disk starts there again, and accepts records. Rejects as `changeDefinition` does, also if the definition of
 * what is there cannot be read.
 */
export async function createUnlessThere(
  client: ClickHouseClient,
  name: string,
  query: string,
): Promise<void> {
  const changed = name.includes('.') ? [name] : [];
  const { isThere } = await readRow<{ isThere: number }>(client, {
    query: `SELECT count() > 0 AS isThere
      FROM (SELECT name FROM system.databases UNION ALL SELECT concat(database, '.', name) FROM system.tables)
      WHERE name = {name:String}`,
    query_params: { name },
  });
  // Of several replicas only one was asked.
  if (isThere && !hasReplicas(client)) return assertWritten(client, changed);
  await changeDefinition(client, changed, query);
}

/** Rejects with DefinitionLost if the definition of one of these tables cannot be read from its file, on some replica. */
async function assertWritten(client: ClickHouseClient, changed: readonly string[]): Promise<void> {
  if (changed.length === 0) return;
  const names = changed.map((name) => name.split('.').toReversed());
  const tables = names.map(([table]) => `'${table}'`);
  const databases = names.map(([, database]) => (database ? `'${database}'` : databaseIn(client)));
  const { lost } = await readRow<{ lost: readonly string[] }>(client, {
    // ClickHouse reads this column from the file, and leaves it empty if it cannot. Another process may have dropped the table since. Had
    // it to compare pairs of names, ClickHouse would read the files of all tables, in 6.8 ms of CPU instead of 2.4.
    query: `SELECT groupUniqArray(name) AS lost FROM ${onAllReplicas(client, 'system.tables')}
      WHERE database IN (${databases.join(', ')}) AND name IN (${tables.join(', ')}) AND create_table_query = ''`,
  });
  if (lost.length > 0)
    throw new DefinitionLost(`ClickHouse's file with the definition of ${lost.join(', ')} cannot be read`);
}
