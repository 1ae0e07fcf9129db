// The rows of a shard that is being moved: copied and compared partition by partition, then removed from the server that no longer has the
// shard.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import {
  copyRows,
  type MovedTable,
  movedTables,
  readFingerprint,
  readPartitions,
  removeRows,
} from '../../clickhouse/move-rows.js';
import { AdministrationError } from '../../contract/errors.js';
import { moves } from '../../contract/limits.js';
import { own } from './close.js';
import type { Moving } from './note.js';

/** Copies the rows that the target lacks. Settles when every table has the same rows on both servers. */
export async function copyAll(moving: Moving): Promise<void> {
  const { move, owned, source, target, crash, say } = moving;
  for (const table of movedTables) {
    const onSource = await readPartitions(source, table, move.shard);
    const onTarget = await readPartitions(target, table, move.shard);
    // An earlier try copied this partition, and a deletion has removed all of its rows at the source since.
    for (const partition of onTarget.keys())
      if (!onSource.has(partition)) await removeRows(target, table, owned, partition);
    const total = [...onSource.values()].reduce((sum, rows) => sum + rows, 0);
    let done = 0;
    for (const [partition, rows] of onSource) {
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
    const [onSource, onTarget] = [await read(source), await read(target)];
    if (onSource === onTarget) return;
    if (!onTarget.startsWith('0 ')) await removeRows(target, table, owned, partition);
    await copyRows(source, target, table, owned, partition, progress);
  }
  if ((await read(source)) !== (await read(target)))
    throw new AdministrationError(
      `the rows of shard ${move.shard} in ${table} differ after they were copied: try again`,
    );
}

/** Removes the shard's rows from one of the two servers. That server stays closed for the shard. */
export async function removeAll(moving: Moving, from: ClickHouseClient): Promise<void> {
  const { move, owned, source, crash, say } = moving;
  await own(moving, from);
  for (const table of movedTables) {
    if ((await readPartitions(from, table, move.shard)).size > 0) await removeRows(from, table, owned);
    crash('rows_removed');
    say(`shard ${move.shard}: ${table} removed from server ${from === source ? move.from : move.to}`);
  }
}
