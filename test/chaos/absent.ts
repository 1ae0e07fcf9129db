// Explains acknowledged records that are stored nowhere: which was the first absent one, between which segments and parts it should be,
// what the index says of its key, and what ClickHouse did with its parts. Each line is read separately, since after some faults not all
// can be read.

import { storedTable } from '../../src/clickhouse/tables.js';
import { tables } from '../../src/contract/records.js';
import { eventIdOfKey } from '../../src/ingest/event-id.js';
import type { ClickHouseHandle } from '../harness/clickhouse.js';
import { keyAt } from '../harness/endpoints.js';
import { type Sending, sendingsOf } from '../harness/exactly-once.js';
import type { Invocation, Settlement } from '../harness/load.js';
import type { Broken } from './broken.js';

type Stored = { readonly marker: string; readonly segment: string; readonly part: string };

/** Describes the first absent record of an environment and the stored records around it; undefined if none is absent. */
export async function explainAbsent(
  clickhouse: ClickHouseHandle,
  database: string,
  appId: string,
  history: readonly (Invocation & Partial<Settlement>)[],
  broken: readonly Broken[],
): Promise<Broken | undefined> {
  const absent = new Set(broken.filter(({ kind }) => kind === 'lost').map(({ what }) => what));
  const stored = history
    .flatMap(sendingsOf)
    .filter(({ verdict }) => verdict === 'stored')
    .sort((a, b) => a.settledMs - b.settledMs);
  const markerOf = ({ event }: Sending) => event.properties.marker;
  const isAbsent = (sending: Sending) =>
    absent.has(markerOf(sending)) || absent.has(String(sending.event.idempotency_key));
  const first = stored.findIndex(isAbsent);
  if (first === -1) return undefined;
  const lines = async (sql: string) =>
    clickhouse
      .query(sql)
      .then((text) => text.trim().split('\n'))
      .catch((error: Error) => [`cannot be read: ${error.message.slice(0, 300)}`]);
  const found = new Map<string, Stored>();
  for (const row of await lines(`SELECT properties['marker'], toString(segment), _part
    FROM ${database}.${storedTable('events')} WHERE app_id = '${appId}' FORMAT TSV`)) {
    const [marker = '', segment = '', part = ''] = row.split('\t');
    found.set(marker, { marker, segment, part });
  }
  const nearest = (sendings: readonly Sending[]) => {
    const near = sendings.map(markerOf).find((marker) => found.has(marker));
    return near === undefined ? 'none' : JSON.stringify(found.get(near));
  };
  const absentOnes = stored.filter(isAbsent);
  const last = absentOnes.at(-1) as Sending;
  /** Which segments own the key of a record by the index, and how many rows each has. */
  const ownersOf = async ({ endpoint, event }: Sending) => {
    const key = keyAt(endpoint, event);
    if (key === undefined) return ['it has no key'];
    const id = Buffer.from(eventIdOfKey(appId, key, 'shared'), 'hex');
    const segments = `SELECT segment FROM ${database}.stored_keys WHERE hash = ${id.readBigUInt64LE(0)} AND rest = ${id.readUIntLE(8, 6)}`;
    const sources = [...tables.map(storedTable), 'failed_events'];
    const its = sources.map(
      (table) =>
        `SELECT '${table}', segment, count() FROM ${database}.${table} WHERE segment IN (${segments}) GROUP BY segment`,
    );
    return [...(await lines(segments)), 'rows of these:', ...(await lines(its.join(' UNION ALL ')))];
  };
  // ClickHouse creates the table of its part log only when it first writes to it.
  await lines('SYSTEM FLUSH LOGS');
  const log = `SELECT event_time_microseconds, event_type, merge_reason, table, part_name, merged_from, rows, error, exception
    FROM system.part_log WHERE table IN (${tables.map((table) => `'${storedTable(table)}'`)})`;
  const detail = [
    `${absentOnes.length} are absent, the first one ${markerOf(stored[first] as Sending)}, answered at ${Math.round((stored[first] as Sending).settledMs)} ms, the last one at ${Math.round(last.settledMs)} ms`,
    `stored before the first: ${nearest(stored.slice(0, first).reverse())}`,
    `stored after it: ${nearest(stored.slice(first))}`,
    `segments that own the key of the first: ${(await ownersOf(stored[first] as Sending)).join('; ')}`,
    `segments that own the key of the last: ${(await ownersOf(last)).join('; ')}`,
    `detached parts: ${(await lines('SELECT table, name, reason, bytes_on_disk FROM system.detached_parts')).join('; ')}`,
    `parts: ${(await lines(`SELECT table, name, rows, min_block_number, max_block_number FROM system.parts WHERE database = '${database}' AND active AND table LIKE 'stored_%'`)).join('; ')}`,
    `failed work on parts: ${(await lines(`${log} AND error != 0 ORDER BY event_time_microseconds LIMIT 20`)).join('; ')}`,
    `the last events of parts: ${(await lines(`${log} ORDER BY event_time_microseconds DESC LIMIT 60`)).join('; ')}`,
    `ClickHouse's output: ${clickhouse.output().slice(-2_000)}`,
  ].join('\n    ');
  return { kind: 'absent', what: appId, detail };
}
