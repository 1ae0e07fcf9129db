// What ClickHouse holds of an environment, against what was acknowledged: the check that every run ends with.

import type { Deployment } from './deployment.js';
import { BenchError } from './failure.js';

/** The tables of records, by the names of their views. */
export const recordTables = ['events', 'user_properties', 'user_identities'] as const;
export type RecordTable = (typeof recordTables)[number];
export type Records = Readonly<Partial<Record<RecordTable, number>>>;

/** What is stored of one environment; of events also how many different ids they have. */
export type Stored = Records & { readonly ids: number };

/** Where acknowledged records end up: ClickHouse, or what a peer stores into. */
export type Store = { readonly stored: (appId: string) => Promise<Stored> };

/** A look costs ClickHouse some milliseconds of CPU. */
const lookEveryMs = 100;
const merged = { lookEveryMs: 200, msMax: 30_000 };
/** Without a new record for so long, what is missing is lost. */
export const stallMsMax = 30_000;

type Rows = Pick<Deployment, 'rows'>;

/** The records of an environment in a deployment's tables. */
export async function readStored({ rows }: Rows, appId: string): Promise<Stored> {
  const count = (table: RecordTable) => `(SELECT count() FROM ${table} WHERE app_id = '${appId}')`;
  const counts = recordTables.map((table) => `toUInt32(${count(table)}) AS ${table}`).join(', ');
  const ids = `toUInt32((SELECT uniqExact(event_id) FROM events WHERE app_id = '${appId}')) AS ids`;
  const [row] = await rows<Stored>(`SELECT ${counts}, ${ids}`);
  return row ?? { ids: 0 };
}

/** The same without the ids, whose counting takes long, for looking again and again. */
export async function countRecords({ rows }: Rows, appId: string): Promise<number> {
  const tables = recordTables.map((table) => `SELECT app_id FROM ${table} WHERE app_id = '${appId}'`);
  const [row] = await rows<{ records: number }>(
    `SELECT toUInt32(count()) AS records FROM (${tables.join(' UNION ALL ')})`,
  );
  return row?.records ?? 0;
}

export function sumOf(records: Records): number {
  return recordTables.reduce((sum, table) => sum + (records[table] ?? 0), 0);
}

export function plus(a: Records, b: Records): Records {
  return Object.fromEntries(recordTables.map((table) => [table, (a[table] ?? 0) + (b[table] ?? 0)]));
}

/**
 * Settles when `count` says that as many records are stored as were acknowledged, or more. Rejects when it got
 * none for `stallMs`.
 */
export async function untilCounted(
  count: () => Promise<number>,
  acknowledged: number,
  stallMs = stallMsMax,
): Promise<void> {
  let counted = await count();
  for (let movedAt = performance.now(); counted < acknowledged; ) {
    if (performance.now() - movedAt > stallMs) {
      throw new BenchError(`${acknowledged} records were acknowledged, ${counted} are stored`);
    }
    await pause(lookEveryMs);
    const now = await count();
    if (now > counted) movedAt = performance.now();
    counted = now;
  }
}

/** Rejects unless exactly the acknowledged records are stored, each event under an id of its own. */
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

/** Settles when ClickHouse merges nothing, or after 30 s: one run should not pay for another one's merges. */
export async function mergesEnded({ rows }: Rows): Promise<void> {
  const deadline = performance.now() + merged.msMax;
  while (performance.now() < deadline) {
    const [row] = await rows<{ merges: number }>('SELECT toUInt32(count()) AS merges FROM system.merges');
    if (row?.merges === 0) return;
    await pause(merged.lookEveryMs);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
