// The index of idempotency keys: which segment stored a key first, for ever, as long as the table stored_keys is kept. Redis
// decides about the keys that it remembers. Before it forgets one, its segment is stored and the key is in this index, so
// whoever stores a later segment finds it here. Keys are added from the stored rows, by ClickHouse itself, when claims
// are to be forgotten; until then nobody reads or writes the index, and keys cost nothing here. Adding the same keys again
// changes nothing.
//
// A marker says how far the index of a shard reaches. It is written after the keys, which are synced, and read together
// with them, so an index that was lost or set back is noticed before anything is decided by it.

import { randomUUID } from 'node:crypto';
import { tables } from '../contract/records.js';
import { keyIndex } from '../tuning.js';
import type { ClickHouseClient } from './client.js';
import { commandLong, readLong } from './long-statement.js';
import { settingsOfAll } from './replication.js';
import { shardNumberSpacing } from './store.js';
import { storedTable } from './tables.js';

/** The tables whose rows have keys. */
const sources = [...tables.map(storedTable), 'failed_events'] as const;
export type KeySource = (typeof sources)[number];

/** Of a row that ClickHouse refused: the id in its text, or the one that was kept without its text. */
const failedRowId = `unhex(if(row = '', failed_events.event_id, extract(row, '^\\\\["[0-9]+","([0-9a-f]{32})"')))`;

/** The keys of a table's rows as rows of the index. A record without a key has an id that begins with 32 zero bits. */
function keysOf(source: KeySource, condition: string): string {
  const id = source === 'failed_events' ? failedRowId : 'UUIDToNum(event_id)';
  return `SELECT key_hash, reinterpretAsUInt64(substring(key_id, 9, 6)), segment FROM (
      SELECT ${id} AS key_id, reinterpretAsUInt64(substring(key_id, 1, 8)) AS key_hash, segment
      FROM ${source} WHERE ${condition}
    ) WHERE bitAnd(key_hash, 4294967295) != 0`;
}

async function add(client: ClickHouseClient, source: KeySource, condition: string): Promise<void> {
  await commandLong(client, {
    query: `INSERT INTO stored_keys ${keysOf(source, condition)}`,
    clickhouse_settings: {
      // One part a statement, since every part is one more place to look.
      max_insert_threads: '1',
      min_insert_block_size_rows: String(keyIndex.rowsPerStatement),
      min_insert_block_size_bytes: '0',
      // A replicated table takes blocks that are equal only once; the marker may have been lost with what it was in.
      insert_deduplicate: 0,
      // A replica that has the marker must have the keys.
      ...(await settingsOfAll(client)),
    },
  });
}

/**
 * Adds the keys of the rows that meet a condition. To be called before such rows are deleted: the index cannot be made anew
 * from rows that are gone.
 */
export async function keepKeysOf(
  client: ClickHouseClient,
  source: KeySource,
  condition: string,
): Promise<void> {
  await add(client, source, condition);
}

/** Adds the keys of a shard's segments above one number and up to another, all of which ClickHouse has. */
export async function addKeys(
  client: ClickHouseClient,
  shard: number,
  from: string,
  to: string,
): Promise<void> {
  for (const source of sources) await add(client, source, ofSegments(shard, from, to));
}

function ofSegments(shard: number, from: string, to: string): string {
  for (const number of [from, to]) if (!/^\d+$/.test(number)) throw new Error('a number is not decimal');
  return `segment > ${from} AND segment <= ${to} AND segment % ${shardNumberSpacing} = ${shard}`;
}

/**
 * Divides a shard's segments into steps of about as many rows as one statement may add. Settles with the last number of
 * each step; the last of them is `to`.
 */
export async function stepsOf(
  client: ClickHouseClient,
  shard: number,
  from: string,
  to: string,
): Promise<string[]> {
  const condition = ofSegments(shard, from, to);
  const minutes = await readLong<{ minute: string; rows: number | string }>(client, {
    query: `SELECT toString(intDiv(segment, 60000000)) AS minute, count() AS rows FROM (
        ${sources.map((source) => `SELECT segment FROM ${source} WHERE ${condition}`).join(' UNION ALL ')}
      ) GROUP BY minute ORDER BY intDiv(any(segment), 60000000)`,
  });
  const steps: string[] = [];
  let rows = 0;
  for (const [i, minute] of minutes.entries()) {
    rows += Number(minute.rows);
    if (rows < keyIndex.rowsPerStatement || i === minutes.length - 1) continue;
    steps.push((BigInt(minute.minute) * 60_000_000n + 59_999_999n).toString());
    rows = 0;
  }
  return [...steps, to];
}

/** Notes that the keys of all stored segments of a shard up to this number are in the index. */
export async function writeMarker(client: ClickHouseClient, shard: number, to: string): Promise<void> {
  await client.command({
    query: 'INSERT INTO stored_keys VALUES (0, {shard:UInt64}, {to:UInt64})',
    query_params: { shard, to },
    clickhouse_settings: {
      async_insert: 0,
      insert_deduplication_token: randomUUID(),
      ...(await settingsOfAll(client)),
    },
  });
}

/** How far the index of each shard reaches; a shard that is absent has none. */
export async function readMarkers(client: ClickHouseClient): Promise<Map<number, string>> {
  const result = await client.query({
    query:
      'SELECT rest AS shard, toString(max(segment)) AS number FROM stored_keys WHERE hash = 0 GROUP BY rest',
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ shard: number | string; number: string }>();
  return new Map(rows.map(({ shard, number }) => [Number(shard), number]));
}

/** Some hashes of keys, eight bytes each, and how many are expected in all. */
export type KeyHashes = { readonly hashes: Buffer; readonly expected: number };

/** Reads the hashes of a shard's keys that segments above one number and up to another own. */
export async function* readKeyHashes(
  client: ClickHouseClient,
  shard: number,
  from: bigint,
  to: bigint,
): AsyncGenerator<KeyHashes> {
  const condition = `hash != 0 AND ${ofSegments(shard, from.toString(), to.toString())}`;
  const [row] = await readLong<{ keys: number | string }>(client, {
    query: `SELECT count() AS keys FROM stored_keys WHERE ${condition}`,
  });
  const expected = Number(row?.keys ?? 0);
  const { stream } = await client.exec({
    query: `SELECT hash FROM stored_keys WHERE ${condition} FORMAT RowBinary`,
    // It is read while it is found; the whole of it would have to wait in ClickHouse's memory. So nobody watches the statement:
    // the connection's own bound ends an answer that stands still.
    clickhouse_settings: { wait_end_of_query: 0 },
  });
  let left: Buffer = Buffer.alloc(0);
  let read = 0;
  for await (const chunk of stream) {
    const bytes: Buffer = left.length === 0 ? (chunk as Buffer) : Buffer.concat([left, chunk as Buffer]);
    const whole = bytes.length - (bytes.length % 8);
    read += whole / 8;
    yield { hashes: bytes.subarray(0, whole), expected };
    left = bytes.subarray(whole);
  }
  if (read < expected || left.length > 0) throw new Error('the hashes of keys end too early');
}

export type KeyIndexSize = { readonly keys: number; readonly bytes: number };

/** The size of the index on disk. Keys that were added more than once may count so until ClickHouse has merged them. */
export async function readKeyIndexSize(client: ClickHouseClient): Promise<KeyIndexSize> {
  const result = await client.query({
    query: `SELECT sum(rows) AS keys, sum(bytes_on_disk) AS bytes FROM system.parts
      WHERE active AND database = currentDatabase() AND table = 'stored_keys'`,
    format: 'JSONEachRow',
  });
  const [size] = await result.json<{ keys: number | string; bytes: number | string }>();
  return { keys: Number(size?.keys ?? 0), bytes: Number(size?.bytes ?? 0) };
}
