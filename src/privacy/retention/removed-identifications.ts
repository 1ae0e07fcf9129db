// Removing what identifies users, in a way that can be undone. An expired user may return while a run removes the
// identifications: new records would then belong to an unknown user, and a deletion of the merged user would miss them. No check
// beforehand can rule that out. So a copy is written to disk first. After the removal, when everything that was accepted by then is
// stored, the run puts back the identifications of all users who have had a record since its fences.
//
// Until then the removal does not count. Work that needs identifications before that (a round of deletions, the next run, a
// move, a restored backup) undoes it. That is always right, since the next run removes again what has expired.
//
// A run that was paused may send statements long after it was undone. Each of them names a table of the run, and is refused when
// that is gone. So the copy takes effect only when it is renamed, after the run has checked that it still holds the lock.

import { randomBytes } from 'node:crypto';
import { readRow, readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { commandLong, endLong } from '../../clickhouse/long-statement.js';
import { killMutations } from '../../clickhouse/mutate.js';
import {
  databaseIn,
  onAllReplicas,
  onCluster,
  settingsOfAll,
  syncReplicas,
} from '../../clickhouse/replication.js';
import { createScratch, dropScratch, listScratch, renameScratch } from '../../clickhouse/scratch.js';
import { returnNameOf } from '../../clickhouse/store.js';
import { columnsOf, storedTable } from '../../clickhouse/tables.js';
import { retentionRuns } from '../../tuning.js';
import { untilTrue } from '../../wait.js';
import { userTables } from '../deletion/user-tables.js';
import { mergedBy, namePrefix, usersIn } from './expired-rows.js';

const identifications = storedTable('user_identities');
const columns = columnsOf('user_identities').join(', ');
const idOfRow = 'app_id, user_id, segment, commit_number, row_number';

const copyOf = (mark: string) => `${mark}_copied`;
const removedEnd = '_removed';
const removedBy = (mark: string) => `${mark}${removedEnd}`;

/** Copies the identifications that are to go. A copy that does not count yet is simply dropped. */
export async function copyIdentifications(
  client: ClickHouseClient,
  mark: string,
  predicate: string,
): Promise<void> {
  const types = await readRows<{ name: string; type: string }>(client, {
    query: `SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}`,
    query_params: { table: identifications },
  });
  await createScratch(
    client,
    copyOf(mark),
    types.map(({ name, type }) => `${name} ${type}`).join(', '),
    'onDisk',
  );
  await commandLong(client, {
    query: `INSERT INTO ${copyOf(mark)} (${columns}) SELECT ${columns} FROM ${identifications} WHERE ${predicate}`,
    clickhouse_settings: { ...insertSettings, ...(await settingsOfAll(client)), log_comment: mark },
  });
}

/** From here on the identifications may be removed: undoing the run puts them back. Rejects if the run was undone. */
export async function activateCopy(client: ClickHouseClient, mark: string): Promise<void> {
  await renameScratch(client, copyOf(mark), removedBy(mark));
}

/**
 * Puts back the identifications of users who have a record above a segment's number; then the removal counts. To be
 * called when all that was accepted before the removal's end is stored.
 */
export async function returnUsers(
  client: ClickHouseClient,
  mark: string,
  appIds: readonly string[],
  segment: string,
): Promise<void> {
  for (const each of [...appIds, segment])
    if (!/^\d+$/.test(each)) throw new Error('a number is not decimal');
  const removed = removedBy(mark);
  await syncReplicas(client, userTables);
  const isNew = `app_id IN (${appIds.map((appId) => `'${appId}'`).join(', ')}) AND segment > ${segment}`;
  const newRows = usersIn(userTables, () => isNew);
  const { merged, usersOf } = mergedBy(
    `SELECT ${columns} FROM ${removed} UNION ALL SELECT ${columns} FROM ${identifications}
      WHERE app_id IN (SELECT app_id FROM ${removed})`,
  );
  const isBack = `(app_id, user_id) IN (SELECT app_id, user_id FROM (${merged})
    WHERE (app_id, concat('i', merged_identity)) IN (${usersOf(newRows)}))`;
  await putBack(client, removed, isBack);
  await dropScratch(client, removed);
}

/**
 * Ends what runs have left, and puts back all identifications whose removal does not count yet. May be called at
 * any time, and again.
 */
export async function undoRuns(client: ClickHouseClient): Promise<void> {
  const names = await listScratch(client, namePrefix);
  await endLong(client, names);
  // Without its table, which a restart may have dropped, a mutation is stuck for ever.
  await killMutations(client, namePrefix);
  for (const name of names) if (!name.endsWith(removedEnd)) await dropScratch(client, name);
  if (names.length === 0) return;
  // A mutation may have begun meanwhile. No further one can begin without its table.
  await killMutations(client, namePrefix);
  await untilNothingIsRewritten(client);
  for (const name of names.filter((each) => each.endsWith(removedEnd))) {
    const removed = removedBy(`${namePrefix}${randomBytes(6).toString('hex')}`);
    await renameScratch(client, name, removed);
    // Another process that puts the same rows back has begun before, or does not find the table.
    await killStatements(client);
    await putBack(client, removed, '1');
    await dropScratch(client, removed);
  }
}

/** Adds the rows of a copy that the identifications lack. */
async function putBack(client: ClickHouseClient, from: string, condition: string): Promise<void> {
  await syncReplicas(client, [identifications, from]);
  await commandLong(client, {
    query: `INSERT INTO ${identifications} (${columns}) SELECT ${columns} FROM ${from}
      WHERE ${condition} AND (${idOfRow}) NOT IN (
        SELECT ${idOfRow} FROM ${identifications} WHERE app_id IN (SELECT app_id FROM ${from}))`,
    clickhouse_settings: {
      ...insertSettings,
      ...(await settingsOfAll(client)),
      log_comment: returnNameOf(from),
    },
  });
}

// The same rows may be put back in every run. A block of them goes to every month that has one of them.
const insertSettings = {
  async_insert: 0,
  insert_deduplicate: 0,
  max_partitions_per_insert_block: '0',
} as const;

/** Ends the inserts of all runs; settles when none is left. */
async function killStatements(client: ClickHouseClient): Promise<void> {
  await client.command({
    query: `KILL QUERY ${onCluster(client)} WHERE current_database = ${databaseIn(client)}
      AND position(Settings['log_comment'], '${namePrefix}') > 0 SYNC`,
  });
}

/** A mutation that was ended may still put the last part that it rewrote in place. */
async function untilNothingIsRewritten(client: ClickHouseClient): Promise<void> {
  const isNothing = async () => {
    const { parts } = await readRow<{ parts: string | number }>(client, {
      query: `SELECT count() AS parts FROM ${onAllReplicas(client, 'system.merges')}
        WHERE database = ${databaseIn(client)} AND table = {table:String} AND is_mutation`,
      query_params: { table: identifications },
    });
    return Number(parts) === 0;
  };
  if (!(await untilTrue(isNothing, { msMax: retentionRuns.storedMsMax })))
    throw new Error('identifications are still being rewritten');
}
