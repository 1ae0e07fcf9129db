// Which earlier segments own the keys of a segment. The index decides, but looking up one key among 100 million costs ClickHouse 15 µs.
// Repeats seldom come alone: a producer that sends old events again sends them in much the same order, so a few earlier segments own most
// of their keys. Then the keys of those segments are read from their stored rows, segment by segment, and the index is asked only about
// the rest. A stored row proves that its segment owns its key, since a key has only one row.

import type { TableName } from '../contract/records.js';
import { keyIndex } from '../tuning.js';
import { type Question, readBytes } from './answers.js';
import { type ClickHouseClient, codeOfFault, endingAfter, faultCodes } from './client.js';
import { goneOwner } from './key-index.js';
import { keyBytes, type RowKeys } from './row-keys.js';
import { storedTable } from './tables.js';

export type Owners = {
  /** The shard's marker: the index lacks keys of later segments. */
  readonly indexedTo: bigint;
  /** The lowest number of a segment that stored the key with this index in the look-up; undefined if none did. */
  ownerOf(index: number): bigint | undefined;
};

/** A row of an answer: the key as it was looked up, and the segment, its highest byte first. */
const foundBytes = keyBytes + 8;
/** In a row that also has the key's last owner: the offset of that owner's segment. */
const lastOwnerAt = foundBytes + 6;

export async function lookUpKeys(
  client: ClickHouseClient,
  shard: number,
  table: TableName,
  keys: RowKeys,
): Promise<Owners> {
  const rows = await readRowsOfOwners(client, table, keys);
  const known = ownersIn(rows, keys.bytes);
  const rest = rows.length === 0 ? keys : chosen(keys, (index) => known(index) === undefined);
  const index = await askIndex(client, rest);
  return { indexedTo: markerIn(index, shard), ownerOf: ownersIn(Buffer.concat([index, rows]), keys.bytes) };
}

/** The keys of the segments that own many of these; none if a sample finds no such segments. */
async function readRowsOfOwners(client: ClickHouseClient, table: TableName, keys: RowKeys): Promise<Buffer> {
  const { sampledFrom, sample, shareOfOwner, rowsReadPerKey } = keyIndex;
  const none = Buffer.alloc(0);
  if (keys.count < sampledFrom) return none;
  const step = Math.floor(keys.count / sample);
  const sampled = chosen(keys, (index) => index % step === 0);
  const ownerOf = ownersIn(await askIndex(client, sampled), sampled.bytes);
  const counts = new Map<bigint, number>();
  for (let index = 0; index < sampled.count; index++) {
    const owner = ownerOf(index);
    if (owner !== undefined) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  }
  const owners = [...counts].filter(([, count]) => count >= shareOfOwner * sampled.count);
  if (owners.length === 0) return none;
  try {
    return await ask(
      client,
      `SELECT toFixedString(substring(UUIDToNum(event_id), 1, ${keyBytes}) || reverse(reinterpret(segment, 'FixedString(8)')), ${foundBytes})
        FROM ${storedTable(table)} WHERE segment IN (${owners.map(([owner]) => owner).join(', ')})
          AND app_id != ''`,
      { max_rows_to_read: String(rowsReadPerKey * keys.count) },
    );
  } catch (error) {
    // Finding their rows would read too many others.
    if (codeOfFault(error) === faultCodes.tooManyRows) return none;
    throw error;
  }
}

function chosen(keys: RowKeys, isChosen: (index: number) => boolean): RowKeys {
  const rows: number[] = [];
  const bytes = Buffer.allocUnsafe(keys.bytes.length);
  for (let index = 0; index < keys.count; index++) {
    if (!isChosen(index)) continue;
    keys.bytes.copy(bytes, keyBytes * rows.length, keyBytes * index, keyBytes * (index + 1));
    rows.push(keys.rows[index] as number);
  }
  return { rows, bytes: bytes.subarray(0, keyBytes * rows.length), count: rows.length };
}

/** What the index says of keys: their owners, and whether their rows are gone. */
export type Indexed = Owners & { isGone(index: number): boolean };

export async function lookUpIndexed(
  client: ClickHouseClient,
  shard: number,
  keys: Pick<RowKeys, 'bytes' | 'count'>,
  msMax: number,
): Promise<Indexed> {
  const bytes = foundBytes + keyBytes;
  const found = await askIndex(client, keys, ', max(owner)', endingAfter(msMax));
  const rowOf = rowsIn(found, keys.bytes, bytes);
  return {
    indexedTo: markerIn(found, shard, bytes),
    ownerOf: (index) => numberAt(found, rowOf(index), keyBytes),
    isGone: (index) => (numberAt(found, rowOf(index), lastOwnerAt) ?? 0n) >= goneOwner,
  };
}

/** Settles with the owners of the keys that the index has, and with all markers. `more`: further columns. */
function askIndex(
  client: ClickHouseClient,
  keys: Pick<RowKeys, 'bytes' | 'count'>,
  more = '',
  ending: Ending = {},
): Promise<Buffer> {
  // As one base64 text of 64-bit numbers: ClickHouse reads each in 0.5 µs, instead of 3 to 5 as a list of literals. The last number is 0,
  // the hash of all markers.
  const hashes = Buffer.alloc(8 * keys.count + 8);
  for (let i = 0; i < keys.count; i++) keys.bytes.copy(hashes, 8 * i, keyBytes * i, keyBytes * i + 8);
  return ask(
    client,
    // The first owner of a key, and the last marker, of which there are many.
    `SELECT reinterpret(hash, 'FixedString(8)'), if(hash = 0, max(owner), min(owner))${more} FROM stored_keys WHERE hash IN (
        SELECT arrayJoin(reinterpret(base64Decode('${hashes.toString('base64')}'), 'Array(UInt64)'))
      ) GROUP BY hash, substring(owner, 1, 6)`,
    {
      max_query_size: '16777216',
      // 4 takes a quarter less of ClickHouse's CPU at 100 million keys than the default, 8.
      merge_tree_coarse_index_granularity: '4',
      // Hashes and owners of a granule are read together. Reading the hashes first takes an eighth more.
      optimize_move_to_prewhere: 0,
      // About a kilobyte is read for each key; reading it in this thread takes a tenth less.
      local_filesystem_read_method: 'pread',
      max_read_buffer_size: '4096',
      max_read_buffer_size_local_fs: '4096',
    },
    ending,
  );
}

type Settings = NonNullable<Question['clickhouse_settings']>;
type Ending = Partial<ReturnType<typeof endingAfter>>;

function ask(
  client: ClickHouseClient,
  query: string,
  settings: Settings,
  ending: Ending = {},
): Promise<Buffer> {
  const clickhouse_settings = { max_threads: 1, ...settings, ...ending.clickhouse_settings };
  return readBytes(client, { query, ...ending, clickhouse_settings });
}

/** Finds the owners of these keys in an answer. */
function ownersIn(found: Buffer, keys: Buffer): Owners['ownerOf'] {
  const rowOf = rowsIn(found, keys, foundBytes);
  return (index) => numberAt(found, rowOf(index), keyBytes);
}

/** Finds the offsets of these keys in an answer with rows of this many bytes. */
function rowsIn(found: Buffer, keys: Buffer, rowBytes: number): (index: number) => number | undefined {
  /** The last row by 32 bits of its key; `earlierAt` leads to earlier rows with the same bits. */
  const lastAt = new Map<number, number>();
  const earlierAt = new Int32Array(found.length / rowBytes);
  for (let at = 0, row = 0; at < found.length; at += rowBytes, row++) {
    const bits = found.readInt32LE(at);
    earlierAt[row] = lastAt.get(bits) ?? -1;
    lastAt.set(bits, row);
  }
  return (index) => {
    const from = keyBytes * index;
    for (let row = lastAt.get(keys.readInt32LE(from)) ?? -1; row !== -1; row = earlierAt[row] as number) {
      const at = rowBytes * row;
      if (keys.compare(found, at, at + keyBytes, from, from + keyBytes) === 0) return at;
    }
    return undefined;
  };
}

function numberAt(found: Buffer, row: number | undefined, offset: number): bigint | undefined {
  return row === undefined ? undefined : found.readBigUInt64BE(row + offset);
}

function markerIn(found: Buffer, shard: number, rowBytes = foundBytes): bigint {
  for (let at = 0; at < found.length; at += rowBytes) {
    if (found.readBigUInt64LE(at) === 0n && found.readUIntLE(at + 8, 6) === shard)
      return found.readBigUInt64BE(at + keyBytes);
  }
  return 0n;
}
