// Requests for exports, in Redis only and for a day. A request names users, so a deletion of one of them ends it (end.ts). It is complete
// when ClickHouse has every record acknowledged before it and no earlier deletion is pending. Each status request checks this.

import { inBatches } from '../../batches.js';
import { userExports } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys, shardOf } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { appIdsOf, readLoaded, readLoadedRegistry } from '../../registry/registry.js';
import { exportEnds } from '../../tuning.js';
import { readStored } from '../deletion/fences.js';
import type { Target } from '../deletion/targets.js';

export type ExportRequest = {
  readonly user_export_id: string;
  readonly account_id: string;
  readonly targets: readonly Target[];
  /** By shard: the highest segment number in use before the request was answered. */
  readonly fences: readonly string[];
};

export type StoredExport = ExportRequest & {
  /** The account's deletions that were pending when the export was stored, until all of them are over. What they delete is not exported. */
  readonly earlierDeletions: readonly string[];
};

/** A request by its id; undefined once it has ended. Throws StateNotLoaded when Redis was emptied. */
export async function readExport(redis: Redis, id: string): Promise<StoredExport | undefined> {
  const [text] = await readLoaded(redis, (transaction) => transaction.get(registryKeys.export(id)));
  return text === null ? undefined : exportOfText(text as string);
}

function exportOfText(text: string): StoredExport {
  const lineEnd = text.indexOf('\n');
  const earlierDeletions = text.slice(0, lineEnd).split(' ').filter(Boolean);
  return { ...(JSON.parse(text.slice(lineEnd + 1)) as ExportRequest), earlierDeletions };
}

export type ListedExport = { readonly id: string; readonly submittedAt: string; readonly endsAt: string };

/** The latest exports of an account, from the newest. */
export async function listExports(
  redis: Redis,
  accountId: string,
  countMax: number,
): Promise<readonly ListedExport[]> {
  const ids = await exportIdsOf(redis, accountId);
  if (ids.length === 0) return [];
  const ends = await redis.zmscore(registryKeys.exports, ...ids.map((id) => `${accountId} ${id}`));
  const timeOf = (ms: number) => new Date(ms).toISOString();
  return ids
    .flatMap((id, at) => (ends[at] == null ? [] : { id, endMs: Number(ends[at]) }))
    .sort((a, b) => b.endMs - a.endMs)
    .slice(0, countMax)
    .map(({ id, endMs }) => ({ id, submittedAt: timeOf(endMs - userExports.keptMs), endsAt: timeOf(endMs) }));
}

export async function exportIdsOf(redis: Redis, accountId: string): Promise<readonly string[]> {
  const members = await redis.zrangebylex(registryKeys.exportsByAccount, `[${accountId} `, `[${accountId}!`);
  return members.map((member) => member.slice(accountId.length + 1));
}

/** Exports by their ids. Reads them one at a time, since each may name many users. Those that have ended are missing. */
export async function* readExports(redis: Redis, ids: readonly string[]): AsyncGenerator<StoredExport> {
  for (const some of inBatches(ids, exportEnds.exportsPerRead)) {
    const texts = await redis.mget(...some.map(registryKeys.export));
    for (const text of texts) if (text !== null) yield exportOfText(text);
  }
}

/** Whether all records of the export can be read. Once true, it stays true. When the deletions before it are over, it forgets them. */
export async function isComplete(redis: Redis, epoch: string, request: StoredExport): Promise<boolean> {
  const { account_id: accountId, earlierDeletions, fences } = request;
  for (const some of inBatches(earlierDeletions, exportEnds.deletionsPerRead)) {
    const members = some.map((id) => `${accountId} ${id}`);
    const [scores] = await readLoaded(
      redis,
      (transaction) => transaction.zmscore(registryKeys.pendingDeletionsByAccount, ...members),
      epoch,
    );
    if ((scores as unknown[]).some((score) => score !== null)) return false;
  }
  if (earlierDeletions.length > 0)
    await runScript(redis, scripts.forgetEarlierDeletions, [registryKeys.export(request.user_export_id)], []);
  const isStored = await readStored({ redis, epoch, shards: fences.length });
  const waiting = [...fences.keys()].filter((shard) => !isStored(shard, fences[shard]));
  if (waiting.length === 0) return true;
  // The export must not wait for other accounts' shards. This reads the whole registry, so it comes last.
  const appIds = appIdsOf(await readLoadedRegistry(redis), accountId);
  return appIds.every((appId) => !waiting.includes(shardOf(appId, fences.length)));
}
