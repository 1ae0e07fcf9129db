// Ends the exports that a deletion affects: those that were requested before it and name one of its users. Their requests contain that
// user's name, and their records are about to be deleted. An export that is requested later waits for the deletion instead.

import { hash } from 'node:crypto';
import { grouped, inBatches } from '../../batches.js';
import { streamRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { deletionRounds, exportEnds } from '../../tuning.js';
import { quoteIds } from '../deletion/kept-targets.js';
import type { DeletionRequest } from '../deletion/request.js';
import { targetOfColumns } from '../deletion/targets.js';
import { targetTable } from '../deletion/user-tables.js';
import { exportIdsOf, readExports } from './request.js';
import { endReadingEverywhere, exportPrefix } from './tables.js';

/**
 * Ends the exports that these deletions affect, with their downloads. Call it while ClickHouse has the users of the deletions, including
 * resolved ones, and still has all of their rows. May be repeated. A round of thousands of deletions waits for it, so one query covers many
 * of them.
 */
export async function endExportsOf(
  redis: Redis,
  clickhouse: ClickHouseClient,
  deletions: readonly DeletionRequest[],
): Promise<void> {
  let named = namingNobody();
  for (const [accountId, its] of grouped(deletions, ({ account_id }) => account_id)) {
    await addNamed(
      redis,
      accountId,
      its.map(({ deletion_request_id }) => deletion_request_id),
      named,
    );
    if (named.exportsOf.size < exportEnds.usersPerStatement) continue;
    await endNaming(redis, clickhouse, named);
    named = namingNobody();
  }
  await endNaming(redis, clickhouse, named);
}

/** The users that exports name, hashed since names may be long, and which of the deletions precede each export. */
type Named = {
  /** By account and user. */
  readonly exportsOf: Map<string, string[]>;
  readonly earlier: Map<string, ReadonlySet<string>>;
  readonly accountOf: Map<string, string>;
  readonly deletionIds: string[];
};

function namingNobody(): Named {
  return { exportsOf: new Map(), earlier: new Map(), accountOf: new Map(), deletionIds: [] };
}

async function addNamed(
  redis: Redis,
  accountId: string,
  deletionIds: readonly string[],
  named: Named,
): Promise<void> {
  const exportIds = await exportIdsOf(redis, accountId);
  if (exportIds.length === 0) return;
  const { exportsOf, earlier, accountOf } = named;
  for (const id of deletionIds) accountOf.set(id, accountId);
  named.deletionIds.push(...deletionIds);
  const now = new Set(deletionIds);
  for await (const { user_export_id: id, targets, earlierDeletions } of readExports(redis, exportIds)) {
    accountOf.set(id, accountId);
    earlier.set(id, new Set(earlierDeletions.filter((deletionId) => now.has(deletionId))));
    for (const target of targets) {
      const key = hashOf(accountId, target);
      const its = exportsOf.get(key);
      if (its === undefined) exportsOf.set(key, [id]);
      else its.push(id);
    }
  }
}

function hashOf(accountId: string, target: string): string {
  return hash('sha256', `${accountId} ${target}`, 'hex').slice(0, 32);
}

/** Ends the exports that name users of deletions that were submitted after them. */
async function endNaming(redis: Redis, clickhouse: ClickHouseClient, named: Named): Promise<void> {
  if (named.exportsOf.size === 0) return;
  const found = new Set<string>();
  for (const requestIds of inBatches(named.deletionIds, exportEnds.deletionsPerStatement))
    for await (const id of findNaming(clickhouse, requestIds, named)) found.add(id);
  for (const ids of inBatches(found, deletionRounds.writesAtOnceMax)) {
    await Promise.all(ids.map((id) => endExport(redis, named.accountOf.get(id) ?? '', id)));
    await endReadingEverywhere(clickhouse, ids.map(exportPrefix));
  }
}

async function endExport(redis: Redis, accountId: string, id: string): Promise<void> {
  await runScript(
    redis,
    scripts.endExport,
    [
      registryKeys.exports,
      registryKeys.export(id),
      registryKeys.exportWeights,
      registryKeys.exportsByAccount,
    ],
    [`${accountId} ${id}`],
  );
}

/** The exports that were requested before one of the deletions and name one of its users, in any environment. */
async function* findNaming(
  clickhouse: ClickHouseClient,
  requestIds: readonly string[],
  { exportsOf, earlier, accountOf }: Named,
): AsyncGenerator<string> {
  const rows = streamRows<{ request_id: string; identity: string; user_id: string | null }>(clickhouse, {
    query: `SELECT DISTINCT request_id, identity, toString(user_id) AS user_id FROM ${targetTable}
      WHERE request_id IN (${quoteIds(requestIds)})`,
  });
  for await (const { request_id: requestId, identity, user_id: userId } of rows) {
    const target = targetOfColumns(identity, userId);
    const naming = exportsOf.get(hashOf(accountOf.get(requestId) ?? '', target)) ?? [];
    for (const id of naming) if (earlier.get(id)?.has(requestId) !== true) yield id;
  }
}
