// The copies of the witness (witness.ts): each ClickHouse server's table has the numbers that it has seen, and Redis records for each
// server the latest one.

import { readRow, readRows } from '../clickhouse/answers.js';
import { type ClickHouseClient, codeOfFault, endingAfter, faultCodes } from '../clickhouse/client.js';
import { onAllReplicas } from '../clickhouse/replication.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { onReplicas } from '../redis/replicas.js';
import { witnesses } from '../tuning.js';

/** A part of the deployment that has a witness: `registry`, a shard (its number as text), `gaplessOf` a shard, or `copies`. */
export type Part = string;

export const registry: Part = 'registry';
/** Written only when every change has its second copy. */
export const copies: Part = 'copies';

/** Up to its `storedTo` every segment of a shard is stored: later ones may be stored before it. */
export const gaplessOf = (shard: Part): Part => `${shard} gapless`;

/** What a server has seen of a part. */
export type Seen = {
  readonly number: number;
  /** The highest segment that ClickHouse had by then, and how many records had ever been stored. */
  readonly storedTo: number;
  readonly storedRecords: number;
};

export const seenNothing: Seen = { number: 0, storedTo: 0, storedRecords: 0 };

const keptField = (server: number) => `kept:${server}`;

/** By server, the latest number that it is known to have seen. */
export async function readKept(redis: Redis): Promise<ReadonlyMap<number, number>> {
  const fields = Object.entries(await redis.hgetall(registryKeys.witness));
  return new Map(
    fields
      .filter(([field]) => field.startsWith('kept:'))
      .map(([field, number]) => [Number(field.slice('kept:'.length)), Number(number)]),
  );
}

/** Records that a server has seen a number. */
export async function noteKept(redis: Redis, server: number, number: number): Promise<void> {
  await redis.hset(registryKeys.witness, keptField(server), String(number));
}

/** From then on these servers count as current, whatever they have: they were recovered, or replaced on purpose. */
export async function forgetKept(redis: Redis, servers: readonly number[]): Promise<void> {
  await onReplicas(redis, registryKeys.witness, () =>
    redis.hdel(registryKeys.witness, ...servers.map(keptField)),
  );
}

/** When ClickHouse last had the second copies of all changes, by its clock; null if that is not known. */
export async function readCopiedAt(clickhouse: ClickHouseClient): Promise<string | null> {
  const row = await readRow<{ at: string; known: string | number }>(clickhouse, {
    query: `SELECT toString(max(written_at)) AS at, count() AS known FROM witness WHERE part = '${copies}'`,
  });
  return Number(row.known) === 0 ? null : `${row.at.replace(' ', 'T')}Z`;
}

/** What a server has seen; empty if it has lost the table. */
export async function readSeen(clickhouse: ClickHouseClient): Promise<Map<Part, Seen>> {
  try {
    const rows = await readRows<Record<'part' | 'number' | 'stored_to' | 'stored_records', string>>(
      clickhouse,
      {
        query: `SELECT part, toString(max(w.number)) AS number, toString(argMax(stored_to, w.number)) AS stored_to,
          toString(argMax(stored_records, w.number)) AS stored_records
        FROM ${onAllReplicas(clickhouse, 'witness')} AS w GROUP BY part`,
        ...endingAfter(witnesses.clickhouseMsMax, { skip_unavailable_shards: 1 }),
      },
    );
    return new Map(
      rows.map(({ part, number, stored_to, stored_records }) => [
        part,
        { number: Number(number), storedTo: Number(stored_to), storedRecords: Number(stored_records) },
      ]),
    );
  } catch (error) {
    const code = codeOfFault(error);
    if (code === faultCodes.unknownTable || code === faultCodes.unknownDatabase) return new Map();
    throw error;
  }
}

/**
 * Writes numbers to a server. A server that was set back ignores the write, so it never catches up. Settles with the number that the server
 * then has of the registry.
 */
export async function writeSeen(
  clickhouse: ClickHouseClient,
  parts: ReadonlyMap<Part, Seen>,
  kept: number,
): Promise<number> {
  const all = [...parts];
  await clickhouse.command({
    query: `INSERT INTO witness (part, number, stored_to, stored_records) SELECT row.1, row.2, row.3, row.4 FROM (
        SELECT arrayJoin(arrayZip({parts:Array(String)}, {numbers:Array(UInt64)}, {stored:Array(UInt64)},
          {records:Array(UInt64)})) AS row)
      WHERE (SELECT max(w.number) FROM witness AS w WHERE part = '${registry}') >= {kept:UInt64}`,
    query_params: {
      parts: all.map(([part]) => part),
      numbers: all.map(([, { number }]) => number),
      stored: all.map(([, { storedTo }]) => storedTo),
      records: all.map(([, { storedRecords }]) => storedRecords),
      kept,
    },
    ...endingAfter(witnesses.clickhouseMsMax),
  });
  return (await readSeen(clickhouse)).get(registry)?.number ?? 0;
}
