// ClickHouse's statements for backups: making one, and restoring one beside the tables in use (staging.ts). BACKUP and RESTORE run in
// the server, and continue after the process that started them has ended.

import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { definitions } from '../tuning.js';
import { succeeds } from '../wait.js';
import { readRow, readRows } from './answers.js';
import { anySize, type ClickHouseClient, faultCodes } from './client.js';
import { assertRoom, changeDefinition } from './definitions.js';
import { readLong } from './long-statement.js';
import { BackupExists, BackupFailed, BackupMissing, readTableIds } from './staging.js';
import { shardNumberSpacing } from './store.js';
import { numberedTables } from './tables.js';
import { takenRecordsTable } from './taken-records.js';

const pollMs = 100;

/**
 * Tables that no backup contains and no restore changes: keyed hashes of users, which expire by themselves, and the witness, since a
 * backup is older on purpose.
 */
export const unkeptTables: readonly string[] = ['deletion_evidence', 'deletion_references', 'witness'];

/** The name of a server's part of a backup: several servers may share the disk. */
export function backupOf(name: string, server: number): string {
  return server === 0 ? name : `${name}.server-${server}`;
}

/**
 * The name of a backup's second part: the index of keys and the taken records, copied after the first part. ClickHouse copies the tables
 * of a part one after another, in an unspecified order. A deletion writes to these two tables, then deletes rows. A part with these
 * tables from before and the rows from after it would lack both: a late repeat would bring a deleted record back, and the ledger would
 * miss the record.
 */
export function keysOfBackup(name: string): string {
  return `${name}.keys`;
}

/**
 * The name of the mark that a backup is complete. It is in the folder of the backup's first part, so a copy of the folder has it too.
 * Only ClickHouse writes to that disk, so the mark is itself a backup of a small table.
 */
export function endOfBackup(name: string): string {
  return `${name}/end`;
}

const keysTable = 'stored_keys';

const tablesOfSecondPart = [keysTable, takenRecordsTable] as const;

const markTable = 'migrations';

export type Base = { readonly name: string; readonly beganAt: Date };

/**
 * Makes a backup of a database on the disk `backups`; settles with its size in bytes when it is done. Rejects with NoRoom, before
 * this server writes anything, if there is certainly too little room. See `make`.
 */
export function makeBackup(
  client: ClickHouseClient,
  database: string,
  name: string,
  base: Base | undefined,
  isContinued: boolean,
): Promise<number> {
  const others = unkeptTables.map((table) => `${database}.${table}`).join(', ');
  const what = `DATABASE ${database} EXCEPT TABLES ${others}`;
  return make(client, what, name, base?.name, isContinued, () => checkRoom(client, database, base));
}

/** Makes the second part of a backup on the basis of its first part. Rejects with NoRoom as that did. */
export function makeKeysBackup(
  client: ClickHouseClient,
  database: string,
  first: Base,
  isContinued: boolean,
): Promise<number> {
  const { name } = first;
  const tables = tablesOfSecondPart.map((table) => `TABLE ${database}.${table}`).join(', ');
  const check = () => checkRoom(client, database, first, tablesOfSecondPart);
  return make(client, tables, keysOfBackup(name), name, isContinued, check);
}

/** Rejects with NoRoom if what a backup of the database, or of these tables, certainly copies has no room. */
async function checkRoom(
  client: ClickHouseClient,
  database: string,
  base: Base | undefined,
  tables: readonly string[] = [],
): Promise<void> {
  // With a base only files of later parts are copied, of a mutated part (`PARTITION_MIN_MAX_LEVEL_MUTATION`) perhaps one file only.
  // The age of the base is compared by ClickHouse's clock, which may differ from this one.
  const isCopied =
    base === undefined
      ? 'true'
      : `modification_time > now() - {ageSeconds:UInt64} AND countSubstrings(name, '_') = 3`;
  const ageMs = base === undefined ? 0 : Date.now() - base.beganAt.getTime();
  const { bytes } = await readRow<{ bytes: string }>(client, {
    query: `SELECT toString(sum(bytes_on_disk)) AS bytes FROM system.parts
      WHERE active AND database = {database:String} AND ${isCopied}
        AND (empty({tables:Array(String)}) OR has({tables:Array(String)}, table))`,
    query_params: { database, tables, ageSeconds: Math.max(0, Math.floor(ageMs / 1000)) },
  });
  await assertRoom(client, 'a backup', Number(bytes), 'backups');
}

/** Marks that a backup has all its parts and that they belong together. */
export async function markEnd(
  client: ClickHouseClient,
  database: string,
  name: string,
  isContinued: boolean,
): Promise<void> {
  await make(client, `TABLE ${database}.${markTable}`, endOfBackup(name), undefined, isContinued);
}

/** Whether a backup's end is marked. `into`: a database into which the mark is restored for that. */
export async function hasEnd(
  client: ClickHouseClient,
  database: string,
  name: string,
  into: string,
): Promise<boolean> {
  const mark = tryTable(client, `${database}.${markTable}`, endOfBackup(name), `${into}.end_mark`);
  return succeeds(mark, (error) => error instanceof BackupMissing);
}

/** Restores one table of a backup and drops it, which rejects with BackupMissing if there is no backup of this name. */
export async function tryTable(
  client: ClickHouseClient,
  table: string,
  name: string,
  into: string,
): Promise<void> {
  await restore(client, `TABLE ${table} AS ${into}`, name);
  await client.command({ query: `DROP TABLE ${into} SYNC`, clickhouse_settings: anySize });
}

/**
 * If `isContinued`, a backup that the server has made or is making is not started again; otherwise ClickHouse refuses its name. `check`: called
 * before one is started.
 */
async function make(
  client: ClickHouseClient,
  what: string,
  name: string,
  base: string | undefined,
  isContinued: boolean,
  check?: () => Promise<void>,
): Promise<number> {
  const findBegun = async () => {
    const known = isContinued ? await read(client, "status IN ('CREATING_BACKUP', 'BACKUP_CREATED')") : [];
    return known.findLast((row) => nameOf(row) === name);
  };
  const begun = await findBegun();
  if (begun !== undefined) return untilDone(client, begun.id);
  await check?.();
  const id = randomUUID();
  const settings = [`id = '${id}'`, ...(base === undefined ? [] : [`base_backup = ${onDisk(base)}`])];
  try {
    await client.command({
      query: `BACKUP ${what} TO ${onDisk(name)} SETTINGS ${settings.join(', ')} ASYNC`,
    });
    return await untilDone(client, id);
  } catch (error) {
    // A statement of an earlier process has arrived late.
    const late = error instanceof BackupExists ? await findBegun() : undefined;
    if (late !== undefined) return untilDone(client, late.id);
    throw error;
  }
}

/**
 * Restores a backup of a database into another, new one; settles when that is done. Rejects with BackupMissing if the second part is
 * missing.
 */
export async function restoreInto(
  client: ClickHouseClient,
  database: string,
  name: string,
  into: string,
): Promise<void> {
  await restore(client, `DATABASE ${database} AS ${into}`, name);
  await restoreKeys(client, database, name, into);
  await renumberParts(client, into);
}

/** Replaces tables of a backup's first part by those of its second part. */
async function restoreKeys(
  client: ClickHouseClient,
  database: string,
  name: string,
  into: string,
): Promise<void> {
  const keys = keysOfBackup(name);
  const inFirst = await readTableIds(client, into);
  // A backup of an earlier version lacks the table of taken records.
  const replaced = tablesOfSecondPart.filter((table) => inFirst.has(table));
  const later = (table: string) => `${into}.later_${table}`;
  try {
    const restored = replaced.map((table) => `TABLE ${database}.${table} AS ${later(table)}`);
    await restore(client, restored.join(', '), keys);
  } catch (error) {
    if (!(error instanceof BackupMissing)) throw error;
    throw new BackupMissing(
      `${keys}, a part of the backup ${name}, is missing on the backup disk: copy it there`,
    );
  }
  for (const table of replaced) {
    const name = `${into}.${table}`;
    await client.command({ query: `DROP TABLE ${name} SYNC`, clickhouse_settings: anySize });
    await changeDefinition(client, [name], `RENAME TABLE ${later(table)} TO ${name}`);
  }
}

async function restore(client: ClickHouseClient, what: string, name: string): Promise<void> {
  const id = randomUUID();
  // The database exists already, with another definition than the backup's.
  const settings = `id = '${id}', allow_different_database_def = 1`;
  await assertRoom(client, 'a restore', definitions.roomBytesMin);
  await client.command({ query: `RESTORE ${what} FROM ${onDisk(name)} SETTINGS ${settings} ASYNC` });
  await untilDone(client, id);
}

/**
 * Gives restored parts new numbers. ClickHouse restores a part with the number of the last mutation that was applied to it, but counts
 * the mutations of the new table from 1. So the part would skip every mutation until the new table's numbers have passed that number,
 * and users who are deleted meanwhile would stay in it. Attaching a part resets its number.
 */
async function renumberParts(client: ClickHouseClient, database: string): Promise<void> {
  const rows = await readRows<{ table: string; partition_id: string }>(client, {
    query: `SELECT DISTINCT table, partition_id FROM system.parts
      WHERE database = {database:String} AND active AND data_version > max_block_number`,
    query_params: { database },
  });
  for (const { table, partition_id } of rows) {
    for (const verb of ['DETACH', 'ATTACH'])
      await client.command({
        query: `ALTER TABLE ${database}.${table} ${verb} PARTITION ID '${partition_id}'`,
        clickhouse_settings: anySize,
      });
  }
}

/** The shards that have rows in the connection's database. */
export async function readShards(client: ClickHouseClient): Promise<readonly number[]> {
  const rows = await readLong<{ shard: number | string }>(client, {
    query: numberedTables
      .map((table) => `SELECT DISTINCT segment % ${shardNumberSpacing} AS shard FROM ${table}`)
      .join(' UNION DISTINCT '),
  });
  return rows.map(({ shard }) => Number(shard));
}

/** Settles when no restore is running: a restore continues after its process was killed. */
export async function untilNoRestoreRuns(client: ClickHouseClient): Promise<void> {
  const running = async () => (await read(client, "status = 'RESTORING'")).length > 0;
  while (await running()) await pause(pollMs);
}

/** The names of the backups that the server is making, or has made since it was started. */
export async function backupStates(client: ClickHouseClient): Promise<ReadonlyMap<string, string>> {
  const rows = await read(client, "status IN ('CREATING_BACKUP', 'BACKUP_CREATED', 'BACKUP_FAILED')");
  return new Map(rows.map((row) => [nameOf(row), row.status]));
}

function nameOf({ name }: Row): string {
  return name.replace(/^Disk\('backups', '(.*)'\)$/, '$1');
}

type Row = {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly error: string;
  /** Its size on disk: with a base only what has changed since. */
  readonly compressed_size: string;
};

async function untilDone(client: ClickHouseClient, id: string): Promise<number> {
  for (;;) {
    const [row] = await read(client, `id = '${id}'`);
    if (row === undefined) throw new BackupFailed('clickhouse was restarted meanwhile');
    if (['BACKUP_CREATED', 'RESTORED'].includes(row.status)) return Number(row.compressed_size);
    if (!['CREATING_BACKUP', 'RESTORING'].includes(row.status)) {
      throw failureOf(row.error || row.status);
    }
    await pause(pollMs);
  }
}

/** The first line of ClickHouse's error text, without the stack trace. */
function failureOf(whole: string): BackupFailed {
  const text = (whole.split('\n')[0] ?? '').replace(/,? Stack trace.*$/, '');
  const [, missing] = /Disk\('backups', '([^']*)'\)/.exec(text) ?? [];
  if (text.startsWith(`Code: ${faultCodes.backupNotFound}.`))
    return new BackupMissing(
      missing === undefined ? text : `there is no backup ${missing} on the backup disk`,
    );
  if (text.startsWith(`Code: ${faultCodes.backupExists}.`)) return new BackupExists(text);
  return new BackupFailed(text);
}

async function read(client: ClickHouseClient, condition: string): Promise<Row[]> {
  return readRows<Row>(client, {
    query: `SELECT id, name, status, error, toString(compressed_size) AS compressed_size FROM system.backups
      WHERE ${condition} ORDER BY start_time`,
  });
}

function onDisk(name: string): string {
  if (!/^[\w-]+(\.server-\d+)?(\.keys|\/end)?$/.test(name))
    throw new Error('this is not the name of a backup');
  return `Disk('backups', '${name}')`;
}
