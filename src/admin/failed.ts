// Rows that ClickHouse refused because of their data: shows them, and sends them again once the cause is corrected. The failed rows include
// markers, which have no table_name; these are neither shown nor sent. Rows that name no user were kept without their text: they are shown
// with its hash, and cannot be sent again.

import { readRows } from '../clickhouse/answers.js';
import { type ClickHouseClient, codeOfFault, isPoison } from '../clickhouse/client.js';
import { forgetErrorTexts } from '../clickhouse/error-texts.js';
import { hasRow } from '../clickhouse/replication.js';
import { reachableClients, reachableServers, type Servers, serversOf } from '../clickhouse/servers.js';
import { type FailedRow, insertFailedRow, isRowGone, shardNumberSpacing } from '../clickhouse/store.js';
import { storedTable, UnknownColumns } from '../clickhouse/tables.js';
import { AdministrationError } from '../contract/errors.js';
import { failedRows } from '../contract/limits.js';
import type { TableVersion } from '../contract/records.js';
import type { AdminContext } from '../operations/context.js';
import { withMaintenanceLock } from '../privacy/deletion/maintenance-lock.js';
import { readPendingIds } from '../privacy/deletion/request.js';
import { readLoadedRegistry } from '../registry/registry.js';

/**
 * The oldest failed rows: where they come from and why they failed, never their values. If there are several servers, leaves out the rows
 * of those that do not answer.
 */
export async function listFailed(clickhouse: ClickHouseClient, countMax: number): Promise<unknown[]> {
  const asked = await reachableClients(clickhouse);
  const lists = await Promise.all(asked.map(([, client]) => listFailedOn(client, countMax)));
  // Each server has sorted only its own rows.
  const inOrder = (a: ListedRow, b: ListedRow) =>
    a.segment.length - b.segment.length || a.segment.localeCompare(b.segment) || a.line - b.line;
  return lists.length === 1 ? (lists[0] ?? []) : lists.flat().sort(inOrder).slice(0, countMax);
}

type ListedRow = { readonly segment: string; readonly line: number };

async function listFailedOn(clickhouse: ClickHouseClient, countMax: number): Promise<ListedRow[]> {
  return readRows(clickhouse, {
    query: `SELECT table_name, toString(segment) AS segment, line, app_id,
        if(row = '', text_bytes, length(row)) AS bytes, text_hash, error_code, error, failed_at
      FROM failed_events WHERE table_name != '' ORDER BY failed_events.segment, line LIMIT {countMax:UInt32}`,
    query_params: { countMax },
  });
}

/**
 * Stores every failed row that still has its text again, with the stamps of its acceptance, then removes it from the list. After a crash in
 * between, the row is still listed, and the next retry finds it stored. Rows of an account with pending deletions wait, since the deletion
 * decides whether they stay. Servers that do not answer are named in the result; their rows are not counted.
 */
export async function retryFailed(context: AdminContext) {
  const { clickhouse, redis, log } = context;
  const result = await withMaintenanceLock(redis, 'retry', async ({ isHeld }) => {
    const { epoch, accountOf } = await readAccounts(context);
    const servers = serversOf(clickhouse);
    const reachable = await reachableServers(servers);
    const rows = (
      await Promise.all(
        servers.all.map(async (client, number) => {
          if (!reachable.has(number)) return [];
          const found = await readFailed(client);
          return found.filter((row) => isHere(servers, number, row)).map((row) => ({ client, row }));
        }),
      )
    ).flat();
    let retried = 0;
    for (const { client, row } of rows) {
      if (!(await isHeld()))
        throw new AdministrationError(
          'a deletion or another retry has taken over the failed rows: try again',
        );
      const accountId = accountOf.get(row.app_id);
      if (accountId !== undefined && (await readPendingIds(redis, epoch, accountId)).length > 0) continue;
      if (!(await storeAgain(client, log, row))) continue;
      await removeFailed(client, row);
      retried += 1;
    }
    const away = [...servers.all.keys()].filter((number) => !reachable.has(number));
    return { retried, left: rows.length - retried, ...(away.length > 0 && { servers_away: away }) };
  });
  if (result === 'locked')
    throw new AdministrationError('a deletion, a restore or another retry is running: try again');
  return result;
}

/** Whether a row is to be sent from this server. While a shard is being moved, two servers have its rows, and neither sends them. */
function isHere(servers: Servers, number: number, { segment }: Pick<FailedRow, 'segment'>): boolean {
  const shard = Number(BigInt(segment) % BigInt(shardNumberSpacing));
  return servers.numberOf(shard) === number && !servers.isMoving(shard);
}

async function readAccounts({ redis }: AdminContext) {
  const { deployment, environments } = await readLoadedRegistry(redis);
  const accountOf = new Map([...environments].map(([appId, environment]) => [appId, environment.account_id]));
  return { epoch: deployment.epoch, accountOf };
}

async function readFailed(clickhouse: ClickHouseClient): Promise<FailedRow[]> {
  return readRows<FailedRow>(clickhouse, {
    query: `SELECT table_name, toString(segment) AS segment, line, app_id, row
      FROM failed_events WHERE table_name != '' AND row != '' ORDER BY failed_events.segment, line LIMIT ${failedRows.perRetryMax}`,
  });
}

const tokensMax = 5;

/** Stores a row unless it is already stored, perhaps by an earlier call that was interrupted. Settles with whether it is stored now. */
async function storeAgain(
  clickhouse: ClickHouseClient,
  log: AdminContext['log'],
  row: FailedRow,
): Promise<boolean> {
  const stamps = stampsOf(row);
  if (stamps === undefined) return false;
  try {
    // If ClickHouse recorded a token in a crash without storing the row, the next token is tried.
    for (let burnt = 0; burnt < tokensMax; burnt++) {
      if (await isRowStored(clickhouse, row.table_name, stamps)) return true;
      await insertFailedRow(clickhouse, row, burnt);
    }
    return await isRowStored(clickhouse, row.table_name, stamps);
  } catch (error) {
    if (isRowGone(error)) return false;
    if (!(error instanceof UnknownColumns) && !isPoison(error)) throw error;
    await forgetErrorTexts(clickhouse, [codeOfFault(error)]);
    log.warn({ segment: row.segment, line: row.line, error }, 'a row is refused again');
    return false;
  }
}

type Stamps = { readonly rowNumber: number; readonly segment: number; readonly commitNumber: number };

/** The stamps of a row; undefined if the row is too damaged to have them. */
function stampsOf({ row }: FailedRow): Stamps | undefined {
  try {
    const [rowNumber, segment, commitNumber] = (JSON.parse(row) as unknown[]).slice(-4);
    const stamps = { rowNumber, segment, commitNumber };
    return Object.values(stamps).every(Number.isSafeInteger) ? (stamps as Stamps) : undefined;
  } catch {
    return undefined;
  }
}

/** Whether the row with these stamps is in its table. No other row has the same stamps. */
async function isRowStored(
  clickhouse: ClickHouseClient,
  table: TableVersion,
  stamps: Stamps,
): Promise<boolean> {
  const condition =
    'segment = {segment:UInt64} AND commit_number = {commitNumber:UInt32} AND row_number = {rowNumber:UInt32}';
  return hasRow(clickhouse, storedTable(table), condition, stamps, true);
}

async function removeFailed(clickhouse: ClickHouseClient, row: FailedRow): Promise<void> {
  await clickhouse.command({
    query: `ALTER TABLE failed_events DELETE
      WHERE app_id = {app_id:String} AND segment = {segment:UInt64} AND line = {line:UInt32}
      AND table_name = {table_name:String}`,
    query_params: { app_id: row.app_id, segment: row.segment, line: row.line, table_name: row.table_name },
    clickhouse_settings: { mutations_sync: '2' },
  });
}
