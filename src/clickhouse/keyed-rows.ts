// Finds the rows of an environment with given event ids, for receipts: in the stored tables, in segments that the index of keys does not
// reach yet, and among the rows that ClickHouse refused. Each statement is limited in rows and time: it reads the rows of one
// environment, and no more of them than `receiptReads.rowsReadMax`.

import { tables } from '../contract/records.js';
import { receiptReads } from '../tuning.js';
import { readBytes } from './answers.js';
import { type ClickHouseClient, endingAfter } from './client.js';
import { failedRowId } from './key-index.js';
import { onAllReplicas } from './replication.js';
import { storedTable } from './tables.js';

/** Event ids, 16 bytes each, one after another. */
export type Ids = { readonly bytes: Buffer; readonly count: number };

export const idBytes = 16;
const foundBytes = idBytes + 8;

/**
 * Settles with the segments of the stored rows with these ids, after one number and up to another, by id in hexadecimal digits.
 * Key-only rows count too: their record was skipped, and an answer must not reveal that.
 */
export async function findStoredRows(
  client: ClickHouseClient,
  appId: string,
  { bytes }: Ids,
  above: bigint,
  to: bigint,
): Promise<Map<string, bigint>> {
  // ClickHouse keeps an id as two numbers with their lowest bytes first.
  const ids = Buffer.from(bytes).swap64().toString('base64');
  const rows = tables.map(
    // PREWHERE reads the ids first, and for nearly all rows nothing else.
    (table) => `SELECT event_id, segment FROM ${onAllReplicas(client, storedTable(table))}
      PREWHERE event_id IN (SELECT arrayJoin(reinterpret(base64Decode('${ids}'), 'Array(UUID)')))
      WHERE app_id IN ({appId:String}, '') AND segment > ${above} AND segment <= ${to}`,
  );
  const found = await ask(
    client,
    `SELECT toFixedString(UUIDToNum(event_id) || reverse(reinterpret(segment, 'FixedString(8)')), ${foundBytes})
      FROM (${rows.join(' UNION ALL ')})`,
    appId,
  );
  const segments = new Map<string, bigint>();
  for (let at = 0; at < found.length; at += foundBytes)
    segments.set(found.toString('hex', at, at + idBytes), found.readBigUInt64BE(at + idBytes));
  return segments;
}

/** Settles with which of these ids the environment's failed rows have, as hexadecimal digits. */
export async function findFailedRows(
  client: ClickHouseClient,
  appId: string,
  { bytes, count }: Ids,
): Promise<ReadonlySet<string>> {
  const ids = `base64Decode('${bytes.toString('base64')}')`;
  const found = await ask(
    client,
    `SELECT toFixedString(${failedRowId}, ${idBytes}) FROM ${onAllReplicas(client, 'failed_events')}
      WHERE app_id = {appId:String} AND table_name != '' AND ${failedRowId} IN (
        SELECT arrayJoin(arrayMap(i -> substring(${ids}, ${idBytes} * i + 1, ${idBytes}), range(${count}))))`,
    appId,
  );
  const failed = new Set<string>();
  for (let at = 0; at < found.length; at += idBytes) failed.add(found.toString('hex', at, at + idBytes));
  return failed;
}

function ask(client: ClickHouseClient, query: string, appId: string): Promise<Buffer> {
  return readBytes(client, {
    query,
    query_params: { appId },
    ...endingAfter(receiptReads.clickhouseMsMax, {
      max_threads: 1,
      max_rows_to_read: String(receiptReads.rowsReadMax),
    }),
  });
}
