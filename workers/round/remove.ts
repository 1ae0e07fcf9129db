// The step of a round of deletions that deletes or masks the rows, one table after another.

import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { indexKeysOf } from '../../src/clickhouse/key-index.js';
import { maskRows, readStoredBytes } from '../../src/clickhouse/masks.js';
import { deleteRows, findMutationId } from '../../src/clickhouse/mutate.js';
import { recordTaken } from '../../src/clickhouse/taken-records.js';
import type { DeletionRequest } from '../../src/privacy/deletion/request.js';
import { mutationPredicate } from '../../src/privacy/deletion/round-keys.js';
import type { RoundPart } from '../../src/privacy/deletion/round-parts.js';
import { removalOf } from '../../src/privacy/deletion/round-rows.js';
import type { UserTable } from '../../src/privacy/deletion/user-tables.js';
import { chargeForRows } from '../erase.js';
import { type Resolved, type Round, type RoundOptions, update } from './round.js';

/** Deletes or masks the round's rows in one table. After all tables, `verify` counts that nothing is left. */
export async function removeFrom(options: RoundOptions, round: Round, table: UserTable): Promise<void> {
  const appIds = round.reached.get(table) ?? [];
  if (appIds.length === 0) return;
  for (const part of round.parts.all) {
    const here = appIds.filter((appId) => part.appIds.has(appId));
    if (here.length > 0) await removeOnServer(options, round, table, part, here);
  }
  await update(options, round, ({ left }) => ({ left: (left ?? []).filter((rows) => rows.table !== table) }));
}

/** Deletes or masks the round's rows in one table of one server. */
async function removeOnServer(
  options: RoundOptions,
  round: Round,
  table: UserTable,
  { client: clickhouse, tables }: RoundPart,
  appIds: readonly string[],
): Promise<void> {
  const { crash } = options;
  const { requests } = round;
  const fences = [...requests.values()].flatMap((request) => Object.values(request.fences));
  const predicate = mutationPredicate(tables, appIds, fences);
  const mutation = { table, mark: tables.mark };
  // The mutations of earlier rounds in this table are replaced. Otherwise the list would grow with every failed attempt.
  await update(options, round, ({ mutations }) => ({
    mutations: [...mutations.filter((each) => each.table !== table || each.mark === tables.mark), mutation],
  }));
  // The same rows for all three statements, found by their users once.
  const removal = await removalOf(clickhouse, tables, table, predicate);
  const { from, condition: noted } = removal.noted;
  // A repeat of a deleted record must never be stored. So the key is indexed first: once the row is gone, only the index
  // identifies the repeat.
  await indexKeysOf(clickhouse, table, noted, from);
  await recordTaken(clickhouse, table, noted, 'deleted', from);
  crash('keys_kept');
  // If one table is masked, its requests wait for a pass, which can erase the rows of the others too.
  const reached = [...round.reached].flatMap(([name, ids]) => (ids.length > 0 ? [name] : []));
  const isErasedAtOnce =
    round.mayEraseAtOnce && (await readStoredBytes(clickhouse, reached)) <= options.erasure.atOnceBytesMax;
  if (isErasedAtOnce) await chargeForRows(options, clickhouse, table, removal.condition);
  const mutationId = await (isErasedAtOnce ? deleteRows : maskRows)(clickhouse, table, removal);
  crash('after_mutation');
  const known: [string, string][] = mutationId === '' ? [] : [[nameOf(mutation), mutationId]];
  const idOf = await findMutationIds(clickhouse, round, new Map(known));
  await update(options, round, ({ mutations }) => ({
    mutations: mutations.map((each) => ({ ...each, ...idOf(each) })),
  }));
}

type Issued = DeletionRequest['mutations'][number];

const nameOf = ({ table, mark }: Issued) => `${table} ${mark}`;

/** Finds the ids of mutations that have none yet, including those whose id a crash kept from being written. `ids`: those known by name. */
async function findMutationIds(
  clickhouse: ClickHouseClient,
  { requests }: Resolved,
  ids: Map<string, string | undefined>,
): Promise<(mutation: Issued) => { mutation_id?: string }> {
  for (const mutation of [...requests.values()].flatMap(({ mutations }) => mutations)) {
    if (mutation.mutation_id !== undefined || ids.has(nameOf(mutation))) continue;
    ids.set(nameOf(mutation), await findMutationId(clickhouse, mutation.table, mutation.mark));
  }
  return (mutation) => {
    const mutation_id = mutation.mutation_id ?? ids.get(nameOf(mutation));
    return mutation_id === undefined ? {} : { mutation_id };
  };
}
