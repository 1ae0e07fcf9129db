// Compares what ClickHouse holds of an environment with what was acknowledged. Every run ends with this check.

import { setTimeout as pause } from 'node:timers/promises';
import { BenchError } from '../failure.js';

/** The tables of records, by the names of their views. */
const recordTables = ['events', 'user_properties', 'user_identities'] as const;
type RecordTable = (typeof recordTables)[number];
export type Records = Readonly<Partial<Record<RecordTable, number>>>;

/** Stored records of one environment, and the number of distinct event ids. */
export type Stored = Records & { readonly ids: number };

/** Where acknowledged records are: in ClickHouse, or where a peer stores them. */
export type Store = { readonly stored: (appId: string) => Promise<Stored> };

/** Not more often, since each query costs ClickHouse some milliseconds of CPU. */
const lookEveryMs = 100;
const merged = { lookEveryMs: 200, msMax: 30_000 };
/** If no new record appears for this long, the missing ones are lost. */
const stallMsMax = 30_000;

export type Rows = { rows<Row>(sql: string): Promise<Row[]> };

/** The value of an aggregate, such as `count()`, over `from`; 0 if there is none. */
export async function numberOf({ rows }: Rows, aggregate: string, from: string): Promise<number> {
  const [row] = await rows<{ n: number | null }>(`SELECT toFloat64(${aggregate}) AS n FROM ${from}`);
  return row?.n ?? 0;
}

/** The records of an environment in a deployment's tables. */
export async function readStored({ rows }: Rows, appId: string): Promise<Stored> {
  const count = (table: RecordTable) => `(SELECT count() FROM ${table} WHERE app_id = '${appId}')`;
  const counts = recordTables.map((table) => `toUInt32(${count(table)}) AS ${table}`).join(', ');
  const ids = `toUInt32((SELECT uniqExact(event_id) FROM events WHERE app_id = '${appId}')) AS ids`;
  const [row] = await rows<Stored>(`SELECT ${counts}, ${ids}`);
  return row ?? { ids: 0 };
}

/** Counts all records, but not distinct ids, which would take long; for repeated queries. */
export function countRecords(store: Rows, appId: string): Promise<number> {
  const tables = recordTables.map((table) => `SELECT app_id FROM ${table} WHERE app_id = '${appId}'`);
  return numberOf(store, 'count()', `(${tables.join(' UNION ALL ')})`);
}

export function sumOf(records: Records): number {
  return recordTables.reduce((sum, table) => sum + (records[table] ?? 0), 0);
}

export function plus(a: Records, b: Records): Records {
  return Object.fromEntries(recordTables.map((table) => [table, (a[table] ?? 0) + (b[table] ?? 0)]));
}

export function times(records: Records, factor: number): Records {
  return Object.fromEntries(recordTables.map((table) => [table, (records[table] ?? 0) * factor]));
}

/**
 * Settles with the stored records when `count` returns at least as many as were acknowledged. Rejects if no new record appears for
 * `stallMs`.
 */
export async function untilCounted(
  count: () => Promise<number>,
  acknowledged: number,
  stallMs = stallMsMax,
  everyMs = lookEveryMs,
) {
  let counted = await count();
  for (let movedAt = performance.now(); counted < acknowledged; ) {
    if (performance.now() - movedAt > stallMs) {
      throw new BenchError(`${acknowledged} records were acknowledged, ${counted} are stored`);
    }
    await pause(everyMs);
    const now = await count();
    if (now > counted) movedAt = performance.now();
    counted = now;
  }
  return counted;
}

/** Rejects unless exactly the acknowledged records are stored, with a distinct id for each event. */
export async function assertStored(store: Store, appId: string, acknowledged: Records): Promise<void> {
  const { ids, ...stored } = await store.stored(appId);
  const words = (records: Records) =>
    recordTables.map((table) => `${records[table] ?? 0} ${table}`).join(', ');
  const differs = recordTables.some((table) => (stored[table] ?? 0) !== (acknowledged[table] ?? 0));
  if (differs || ids !== (acknowledged.events ?? 0)) {
    throw new BenchError(
      `acknowledged were ${words(acknowledged)}; stored are ${words(stored)}, the events under ${ids} ids`,
    );
  }
}

/** Settles when ClickHouse is not merging, or after 30 s, so that a run does not pay for the merges of an earlier one. */
export async function mergesEnded(store: Rows): Promise<void> {
  const deadline = performance.now() + merged.msMax;
  while (performance.now() < deadline && (await numberOf(store, 'count()', 'system.merges')) > 0) {
    await pause(merged.lookEveryMs);
  }
}
