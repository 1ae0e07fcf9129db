// The index of idempotency keys: which segment stored a key first. Keys stay as long as the table stored_keys exists. Redis decides
// about the keys that it remembers. Before it forgets one, the key's segment is stored and the key is in this index, where a worker that
// stores a later segment finds it. ClickHouse itself adds keys, from the stored rows, when claims are about to be forgotten; until then
// the index is neither read nor written, and keys cost nothing here. Adding the same keys again changes nothing.
//
// A marker says how far the index of a shard reaches. It is a row of the same table, so no loss, backup or restore separates the two; it
// is written after the keys, which are synced, and read together with them. So an index that was lost or set back is noticed before it
// decides anything. Only a TRUNCATE just after a worker has read the marker, and before it writes the next one, would leave a marker
// without keys; nothing here empties the table, and the runbook says how people may.
//
// Before a row is deleted, its key is added together with a second row (`gone`), which alone says that the key's row no longer exists.
// Its `rest` has one more bit than a key's, and its owner is the key's owner with a bit that no segment number has; so the first owner of
// a key stays the same.
//
// A marker has a generation; a restored or rebuilt index has a higher one. After keys were added, the marker is written only if the
// table still has the generation in which they were added, since the table may have been exchanged meanwhile.

import { randomInt } from 'node:crypto';
import { keyIndex } from '../tuning.js';
import { succeeds } from '../wait.js';
import { readRow, readRows, streamBytes } from './answers.js';
import type { ClickHouseClient } from './client.js';
import { commandLong, readLong, readRowLong } from './long-statement.js';
import { settingsOfAll } from './replication.js';
import { readTableIds } from './staging.js';
import { indexNameOf, isRefusedSegment, shardNumberSpacing } from './store.js';
import { eventIdInRow, numberedTables } from './tables.js';

export type KeySource = (typeof numberedTables)[number];

/** The id of a failed row: from its text, or the id that was kept without the text. */
export const failedRowId = `unhex(if(row = '', failed_events.event_id, extract(row, '${eventIdInRow.replaceAll('\\', '\\\\')}')))`;

/**
 * The keys of a table's rows as rows of the index. A record without a key has an id that begins with 32 zero bits. `from`: another table
 * that has copies of these rows.
 */
function keysOf(source: KeySource, condition: string, from: string = source): string {
  const id = source === 'failed_events' ? failedRowId : 'UUIDToNum(event_id)';
  return `SELECT key_hash AS hash, reinterpretAsUInt64(substring(key_id, 9, 6)) AS rest, segment FROM (
      SELECT ${id} AS key_id, reinterpretAsUInt64(substring(key_id, 1, 8)) AS key_hash, segment
      FROM ${from} WHERE ${condition}
    ) WHERE bitAnd(key_hash, 4294967295) != 0`;
}

/** The bit in `rest` that marks a row which says that the key's row is gone. */
const goneRest = 1n << 48n;
/** The bit in the segment of such a row's owner. */
export const goneOwner = 1n << 62n;

async function add(
  client: ClickHouseClient,
  keys: string,
  into = 'stored_keys',
  settings: Readonly<Record<string, string | number>> = {},
  columns = 'hash, rest, segment',
): Promise<void> {
  await commandLong(client, {
    query: `INSERT INTO ${into} (${columns}) ${keys}`,
    clickhouse_settings: {
      // One part per statement, since a look-up reads every part.
      max_insert_threads: '1',
      min_insert_block_size_rows: String(keyIndex.rowsPerStatement),
      min_insert_block_size_bytes: '0',
      // A replicated table ignores a block that equals an earlier one, whose rows may have been lost.
      insert_deduplicate: 0,
      // A replica that has the marker must have the keys.
      ...(await settingsOfAll(client)),
      ...settings,
    },
  });
}

/**
 * Adds the keys of the rows that meet a condition, marked as gone. Call it before such rows are deleted: the index cannot be rebuilt
 * from deleted rows. `from`: a table that has copies of these rows.
 */
export async function indexKeysOf(
  client: ClickHouseClient,
  source: KeySource,
  condition: string,
  from?: string,
): Promise<void> {
  const owner = `toFixedString(substring(reinterpret(rest, 'FixedString(8)'), 1, 6)
    || reverse(reinterpret(segment + is_gone * ${goneOwner}, 'FixedString(8)')), 14)`;
  const rows = `SELECT hash, rest + is_gone * ${goneRest}, segment, ${owner}
    FROM (${keysOf(source, condition, from)}) ARRAY JOIN [0, 1]::Array(UInt64) AS is_gone`;
  await add(client, rows, 'stored_keys', ownersGiven, ownedColumns);
}

/** For rows whose owner is not computed from `rest` and `segment`. */
const ownersGiven = { insert_allow_materialized_columns: 1 } as const;
const ownedColumns = 'hash, rest, segment, owner';

/**
 * Adds the keys of a shard's segments after one number and up to another, all of which must be stored. A server that no longer has the
 * shard refuses them.
 */
export async function addKeys(
  client: ClickHouseClient,
  shard: number,
  from: string,
  to: string,
): Promise<void> {
  for (const source of numberedTables)
    await add(client, keysOf(source, ofSegments(shard, from, to)), 'stored_keys', {
      log_comment: indexNameOf(shard),
    });
}

function ofSegments(shard: number, from: string, to: string): string {
  for (const number of [from, to]) if (!/^\d+$/.test(number)) throw new Error('a number is not decimal');
  return `segment > ${from} AND segment <= ${to} AND segment % ${shardNumberSpacing} = ${shard}`;
}

/**
 * Divides a shard's segments into steps of about as many rows as one statement may add. Settles with the last segment number of each
 * step; the last one is `to`.
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
        ${numberedTables.map((source) => `SELECT segment FROM ${source} WHERE ${condition}`).join(' UNION ALL ')}
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

/** How far the index of a shard reaches, and its generation. */
export type Marker = { readonly indexedTo: string; readonly generation: string };

/** Generations are higher than all segment numbers. */
const firstGeneration = 1n << 63n;

/** A generation higher than these and than those of lost indexes. */
export function generationAbove(...generations: readonly (string | null | undefined)[]): string {
  const now = firstGeneration + BigInt(Date.now()) * 1000n + BigInt(randomInt(1000));
  const above = generations.map((generation) => BigInt(generation ?? '0') + 1n);
  return [now, ...above].reduce((highest, each) => (each > highest ? each : highest)).toString();
}

/**
 * Records that the index has the keys of all stored segments of a shard up to this number. Settles with false if the marker in the table
 * no longer has the generation `during`, in which the keys were added (undefined: there was no marker), or if the shard was moved to
 * another server and `name` is that of a worker's statement, such as `indexNameOf`.
 */
export async function writeMarker(
  client: ClickHouseClient,
  shard: number,
  { indexedTo, generation }: Marker,
  during: string | undefined,
  name?: string,
): Promise<boolean> {
  const settings = await settingsOfAll(client);
  const writing = client.command({
    // ClickHouse resolves the table to write to before the one to read: so it reads the same table, or one that was exchanged later.
    query: `INSERT INTO stored_keys (hash, rest, segment, owner)
      SELECT 0, {shard:UInt64}, {generation:UInt64}, toFixedString(
        substring(reinterpret({shard:UInt64}, 'FixedString(8)'), 1, 6) || reverse(reinterpret({to:UInt64}, 'FixedString(8)')), 14) AS reaching
      FROM (SELECT max(segment) AS present, max(owner) AS reached FROM stored_keys WHERE hash = 0 AND rest = {shard:UInt64})
      WHERE present = {during:UInt64} AND reached <= reaching`,
    query_params: { shard, generation, to: indexedTo, during: during ?? '0' },
    clickhouse_settings: {
      insert_allow_materialized_columns: 1,
      insert_deduplicate: 0,
      ...settings,
      ...(name !== undefined && { log_comment: name }),
    },
  });
  if (!(await succeeds(writing, isRefusedSegment))) return false;
  const written = (await readMarkers(client)).get(shard);
  return written?.generation === generation && BigInt(written.indexedTo) >= BigInt(indexedTo);
}

/**
 * Gives the index of a shard a new generation, even while workers extend it. Settles with that generation, which is also higher than
 * `known`; with undefined if the index has no marker. `name`: see `writeMarker`.
 */
export async function raiseGeneration(
  client: ClickHouseClient,
  shard: number,
  known: string | null = null,
  name?: string,
): Promise<string | undefined> {
  for (let attempt = 0; attempt < raisesMax; attempt++) {
    const marker = (await readMarkers(client)).get(shard);
    if (marker === undefined) return undefined;
    const { indexedTo } = marker;
    const generation = generationAbove(known, marker.generation);
    if (await writeMarker(client, shard, { indexedTo, generation }, marker.generation, name))
      return generation;
  }
  throw new Error(`the index of keys of shard ${shard} keeps changing`);
}

/** Workers seldom write a marker, and a try fails only during such a write. */
const raisesMax = 20;

/** The markers by shard; shards without one are absent. */
export async function readMarkers(
  client: ClickHouseClient,
  table = 'stored_keys',
): Promise<Map<number, Marker>> {
  const rows = await readRows<{ shard: number | string; indexed_to: string; generation: string }>(client, {
    query: `SELECT rest AS shard, toString(reinterpretAsUInt64(reverse(substring(max(owner), 7, 8)))) AS indexed_to,
        toString(max(segment)) AS generation
      FROM ${table} WHERE hash = 0 GROUP BY rest`,
  });
  return new Map(
    rows.map(({ shard, indexed_to, generation }) => [Number(shard), { indexedTo: indexed_to, generation }]),
  );
}

/** Adds all keys of one database's index to another's, and the keys of rows that the first has not indexed yet. */
export async function addIndexOf(client: ClickHouseClient, from: string, into: string): Promise<void> {
  // Read before the keys: a worker that indexes rows meanwhile raises the marker, and its keys may not have been copied.
  const markers = await readMarkers(client, `${from}.stored_keys`);
  const keys = `SELECT ${ownedColumns} FROM ${from}.stored_keys WHERE hash != 0`;
  await add(client, keys, `${into}.stored_keys`, ownersGiven, ownedColumns);
  await addKeysAbove(
    client,
    from,
    into,
    Object.fromEntries([...markers].map(([shard, { indexedTo }]) => [shard, indexedTo])),
  );
}

/**
 * Adds the keys of a database's rows in segments above these numbers, by shard, to the index of another database. Tables that the first
 * database lacks do not count.
 */
export async function addKeysAbove(
  client: ClickHouseClient,
  from: string,
  into: string,
  numbers: Readonly<Record<string, string>>,
): Promise<void> {
  const shards = Object.keys(numbers);
  const listOf = (values: readonly string[]) => `CAST([${values}], 'Array(UInt64)')`;
  const above =
    shards.length === 0
      ? '1'
      : `segment > transform(segment % ${shardNumberSpacing}, ${listOf(shards)}, ${listOf(Object.values(numbers))}, toUInt64(0))`;
  const present = await readTableIds(client, from);
  for (const source of numberedTables)
    if (present.has(source))
      await add(client, keysOf(source, above, `${from}.${source}`), `${into}.stored_keys`);
}

/**
 * Approximately how many keys of a shard's segments, after one number and up to another, are in the index; exact for a small index. In a
 * large one a sample is counted, since hashes are spread evenly.
 */
export async function countKeysOf(
  client: ClickHouseClient,
  shard: number,
  from: bigint,
  to: bigint,
): Promise<number> {
  return countKeys(client, ofIndexedSegments(shard, from, to));
}

async function countKeys(client: ClickHouseClient, condition: string): Promise<number> {
  const { rows } = await readParts(client);
  const bits = Math.max(0, Math.ceil(Math.log2(rows / keyIndex.countedRows)));
  const hashMax = (1n << BigInt(64 - bits)) - 1n;
  const { keys } = await readRowLong<{ keys: number | string }>(client, {
    query: `SELECT uniqExact(hash, bitAnd(rest, ${goneRest - 1n})) AS keys FROM stored_keys WHERE hash > 0 AND hash <= ${hashMax} AND ${condition}`,
  });
  return Number(keys) * 2 ** bits;
}

/** The condition on rows of the index that segments of a shard own. Parts without such rows are not read. */
function ofIndexedSegments(shard: number, from: bigint, to: bigint): string {
  const segment = 'if(hash = 0, hash, segment)';
  return `${segment} > ${from} AND ${segment} <= ${to} AND segment % ${shardNumberSpacing} = ${shard}`;
}

/**
 * Reads the hashes, eight bytes each, of a shard's keys owned by segments after one number and up to another. `keys`: how many to expect,
 * which decides into how many answers they are divided. The hashes are valid only once the generator has ended.
 */
export async function* readKeyHashes(
  client: ClickHouseClient,
  shard: number,
  from: bigint,
  to: bigint,
  keys: number,
): AsyncGenerator<Buffer> {
  const answers = BigInt(Math.max(1, Math.ceil(keys / keyIndex.hashesPerAnswer)));
  const bound = (answer: bigint) => (answer << 64n) / answers - 1n;
  for (let answer = 1n; answer <= answers; answer++) {
    const above = answer === 1n ? 0n : bound(answer - 1n);
    const pieces = streamBytes(client, {
      query: `SELECT reinterpret(hash, 'FixedString(8)') FROM stored_keys WHERE hash > ${above} AND hash <= ${bound(answer)}
        AND ${ofIndexedSegments(shard, from, to)}`,
    });
    let left: Buffer = Buffer.alloc(0);
    for await (const piece of pieces) {
      const bytes = left.length === 0 ? piece : Buffer.concat([left, piece]);
      const whole = bytes.length - (bytes.length % 8);
      yield bytes.subarray(0, whole);
      left = bytes.subarray(whole);
    }
  }
}

export type KeyIndexSize = { readonly keys: number; readonly bytes: number };

/** The approximate number of keys in the index (see `countKeysOf`), and its size on disk. */
export async function readKeyIndexSize(client: ClickHouseClient): Promise<KeyIndexSize> {
  const [{ bytes }, keys] = await Promise.all([readParts(client), countKeys(client, '1')]);
  return { keys, bytes };
}

async function readParts(client: ClickHouseClient): Promise<{ rows: number; bytes: number }> {
  const size = await readRow<{ rows: number | string; bytes: number | string }>(client, {
    query: `SELECT sum(rows) AS rows, sum(bytes_on_disk) AS bytes FROM system.parts
      WHERE active AND database = currentDatabase() AND table = 'stored_keys'`,
  });
  return { rows: Number(size.rows), bytes: Number(size.bytes) };
}
