// Previews of what a deletion would find: the steps of a round up to its counts, on separate tables in ClickHouse's memory. A preview stores
// nothing, is not one of the pending requests, and sees users that those will delete.

import { randomBytes } from 'node:crypto';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { endLongWhen } from '../../clickhouse/long-statement.js';
import { serversOf } from '../../clickhouse/servers.js';
import { createPlaces } from '../../concurrency.js';
import { previews } from '../../contract/limits.js';
import { shardOf } from '../../redis/keys.js';
import { appIdsOf, readLoadedRegistry } from '../../registry/registry.js';
import { readUnmoved } from '../../registry/shard-servers.js';
import { inTime } from '../../wait.js';
import { takeFences, untilStored } from './fences.js';
import type { FoundRows } from './request.js';
import { resolveAlone } from './resolve-users.js';
import { type NamedUser, readNamedUsers } from './round-counts.js';
import { countRows, createParts, distributeUsers, gatherUsers } from './round-parts.js';
import { dropTables, nameUsers, previewPrefix } from './round-tables.js';
import type { SubmitOptions } from './submit.js';
import type { Target } from './targets.js';

export type Preview = {
  readonly usersFound: number;
  readonly found: readonly FoundRows[];
  /** The named users that have no rows, and those that have similar users. */
  readonly unclear: readonly Pick<NamedUser, 'target' | 'rows' | 'similar'>[];
};

export type PreviewOptions = Pick<SubmitOptions, 'redis' | 'epoch' | 'shards'>;

export type Previews = ReturnType<typeof createPreviews>;

export function createPreviews(clickhouse: ClickHouseClient, msMax: number = previews.msMax) {
  const places = createPlaces(previews.places);
  return {
    /**
     * Looks up what a deletion of these users would find now. Accounts take turns. `busy`: no place was free in time, or a shard was being
     * moved. `too_long`: the look-up did not end in time. Rejects when ClickHouse or Redis fails, or with StateNotLoaded.
     */
    preview: async (options: PreviewOptions, accountId: string, targets: readonly Target[]) => {
      const giveUpAt = performance.now() + msMax;
      const endPlace = await places.take({ account: accountId });
      if (endPlace === undefined) return 'busy';
      const work = lookUp({ ...options, clickhouse, giveUpAt }, accountId, targets).finally(endPlace);
      // A statement that still runs at the deadline is ended soon after; the answer does not wait for it.
      work.catch(() => undefined);
      return inTime(work, giveUpAt - performance.now(), 'too_long' as const);
    },
  };
}

type LookUp = PreviewOptions & {
  readonly clickhouse: ClickHouseClient;
  readonly giveUpAt: number;
};

async function lookUp(
  { clickhouse, giveUpAt, ...fenced }: LookUp,
  accountId: string,
  targets: readonly Target[],
): Promise<Preview | 'busy' | 'too_long'> {
  const isOver = () => performance.now() >= giveUpAt;
  const { redis, shards } = fenced;
  const fences = await takeFences(fenced);
  const appIds = appIdsOf(await readLoadedRegistry(redis), accountId);
  const ownShards = new Set(appIds.map((appId) => shardOf(appId, shards)));
  if (!(await untilStored(fenced, fences, ownShards, { msMax: giveUpAt - performance.now() })))
    return 'too_long';
  const count = () => countAll(clickhouse, accountId, fences, appIds, targets, isOver);
  const found = await readUnmoved(redis, clickhouse, ownShards, count);
  return found === 'moved' ? 'busy' : found;
}

/** Resolves the targets and counts their rows, as a deletion round would. */
async function countAll(
  clickhouse: ClickHouseClient,
  accountId: string,
  fences: readonly string[],
  appIds: readonly string[],
  targets: readonly Target[],
  isOver: () => boolean,
): Promise<Preview | 'too_long'> {
  const id = randomBytes(6).toString('hex');
  const request = { deletion_request_id: 'preview', account_id: accountId, fences, resolved: false };
  const environments = appIds.map((app_id) => ({ app_id, account_id: accountId }));
  const servers = serversOf(clickhouse).all;
  const stopEnding = endLongWhen(servers, `${previewPrefix}${id}`, isOver);
  try {
    const parts = await createParts(clickhouse, id, fences.length, [request], environments, previewPrefix);
    const { tables } = parts.primary;
    await nameUsers(clickhouse, tables, targets);
    await distributeUsers(parts);
    for (const part of parts.all) await resolveAlone(part.client, part.tables);
    await gatherUsers(parts, [0]);
    if (isOver()) return 'too_long';
    const found = await countRows(parts);
    if (isOver()) return 'too_long';
    let usersFound = 0;
    const unclear: Preview['unclear'][number][] = [];
    for await (const { target, rows, similar } of readNamedUsers(clickhouse, tables, false)) {
      if (rows !== '0') usersFound += 1;
      if (rows === '0' || similar > 0) unclear.push({ target, rows, similar });
    }
    return { found: found.get(0) ?? [], usersFound, unclear };
  } finally {
    stopEnding();
    // A table that cannot be dropped now is dropped as a stray one.
    await Promise.allSettled(servers.map((client) => dropTables(client, [`${previewPrefix}${id}`])));
  }
}
