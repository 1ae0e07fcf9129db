// The rows of a shard that moves: copied and compared, partition by partition, and removed where the shard no longer is.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import {
  copyRows,
  endOwnership,
  type MovedTable,
  movedTables,
  readFingerprint,
  readPartitions,
  removeRows,
} from '../../clickhouse/move-rows.js';
import { AdministrationError } from '../../contract/errors.js';
import { moves } from '../../contract/limits.js';
import { own } from './close.js';
import type { Moving } from './moving.js';

/** Copies what the other server lacks. Settles when every table has the same rows on both. */
export async function copyAll(moving: Moving): Promise<void> {
  const { move, owned, source, target, crash, say } = moving;
  for (const table of movedTables) {
    const here = await readPartitions(source, table, move.shard);
    const there = await readPartitions(target, table, move.shard);
    // An earlier try has copied it, and meanwhile a deletion took all of it.
    for (const partition of there.keys())
      if (!here.has(partition)) await removeRows(target, table, owned, partition);
    const total = [...here.values()].reduce((sum, rows) => sum + rows, 0);
    let done = 0;
    for (const [partition, rows] of here) {
      await copyPartition(moving, table, partition, (arrived) =>
        say(`shard ${move.shard}: ${table} ${partition}, ${done + arrived} of ${total} rows`),
      );
      crash('partition_copied');
      done += rows;
      say(`shard ${move.shard}: ${table} ${partition}, ${done} of ${total} rows`);
    }
  }
}

async function copyPartition(
  { move, owned, source, target, crash }: Moving,
  table: MovedTable,
  partition: string,
  arrived: (rows: number) => void,
): Promise<void> {
  const progress = { passed: () => crash('rows_passed_on'), arrived };
  const read = (client: ClickHouseClient) => readFingerprint(client, table, move.shard, partition);
  for (let attempt = 0; attempt < moves.attemptsMax; attempt++) {
    const [here, there] = [await read(source), await read(target)];
    if (here === there) return;
    if (!there.startsWith('0 ')) await removeRows(target, table, owned, partition);
    await copyRows(source, target, table, owned, partition, progress);
  }
  const [here, there] = [await read(source), await read(target)];
  if (here !== there)
    throw new AdministrationError(
      `the rows of shard ${move.shard} in ${table} differ after they were copied: try again`,
    );
}

/** Removes the rows of one of the two servers. It stays closed for the shard. */
export async function removeAll(moving: Moving, from: ClickHouseClient): Promise<void> {
  const { move, owned, source, target, crash, say } = moving;
  await own(moving, from);
  for (const table of movedTables) {
    if ((await readPartitions(from, table, move.shard)).size > 0) await removeRows(from, table, owned);
    crash('rows_removed');
    say(`shard ${move.shard}: ${table} removed from server ${from === source ? move.from : move.to}`);
  }
  for (const client of [source, target]) await endOwnership(client, move.shard);
}
