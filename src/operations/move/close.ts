// Closing a shard for its move, and opening it again: which of the two servers stores its rows, and which shows them.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { readMigrations } from '../../clickhouse/migrate.js';
import { endRemovals } from '../../clickhouse/move-rows.js';
import { serversOf } from '../../clickhouse/servers.js';
import { readDoor, refuseSegments, setDoor } from '../../clickhouse/shard-limits.js';
import { makeLocalViews } from '../../clickhouse/spanning-views.js';
import { copyNameOf, isCopyRunning, isInsertOfShardRunning } from '../../clickhouse/store.js';
import { AdministrationError } from '../../contract/errors.js';
import { takeFence } from '../../privacy/deletion/fences.js';
import { withMaintenanceLock } from '../../privacy/deletion/maintenance-lock.js';
import { readUnfinishedMembers, updateUnfinished } from '../../privacy/deletion/request.js';
import { endRuns } from '../../privacy/retention/expired-rows.js';
import { registryKeys } from '../../redis/keys.js';
import { readLoadedRegistry } from '../../registry/registry.js';
import { stateLoads } from '../../tuning.js';
import type { AdminContext } from '../context.js';
import { untilNoInsertRuns } from '../running-inserts.js';
import { checkOwner, isUnchanged, type Moving, readShardServers } from './note.js';

/** Makes both servers refuse the shard's rows. From then on only this process stores them there, by copying. */
export async function close(moving: Moving): Promise<void> {
  const { context, move, source, target } = moving;
  const { shard } = move;
  const { redis } = context;
  await showOnServer(context, target, move.to);
  for (const client of [source, target]) await own(moving, client);
  for (const client of [source, target]) await untilNoInsertRuns(() => isInsertOfShardRunning(client, shard));
  await untilNoInsertRuns(() => isCopyRunning(target, shard));
  const { deployment } = await readLoadedRegistry(redis);
  const fence = await takeFence({ redis, epoch: deployment.epoch }, shard);
  // Tokens are not copied with the rows, so a worker that read a segment before the move must not insert it: it has to ask Redis and look
  // for the marker again.
  await refuseSegments(target, shard, fence);
}

/**
 * Settles when no deletion round, retention run or retry of failed rows works on the shard. Those that start later see the move. The
 * requests are updated so that a round that chose them earlier, or was paused, finds them changed and ends.
 */
export async function endRounds({ context: { redis }, source }: Moving): Promise<void> {
  const { deployment } = await readLoadedRegistry(redis);
  for (const { requestId } of await readUnfinishedMembers(redis, deployment.epoch))
    await updateUnfinished(redis, requestId, {});
  const ended = await withMaintenanceLock(redis, 'move', () => endRuns(source), stateLoads.insertMsMax);
  if (ended === 'locked')
    throw new AdministrationError(
      'a round of deletions or a restore is still running; try again when it has ended',
    );
}

/** An interrupted restore may have exchanged the tables of only some servers. */
export async function checkNoRestore(redis: AdminContext['redis']): Promise<void> {
  if ((await redis.exists(registryKeys.restoringBackup)) === 1)
    throw new AdministrationError(
      'a backup is being restored, or its restore was interrupted: finish that first',
    );
}

/** Opens the shard on the server that has it. Does nothing if the shard has moved on, since this process was then paused. */
export async function openIfStored(context: AdminContext, shard: number, server: number): Promise<void> {
  const client = serversOf(context.clickhouse).all[server] as ClickHouseClient;
  for (;;) {
    const { state } = await readDoor(client, shard);
    if (!(await storesOn(context, shard, server)) || (await setDoor(client, shard, 'open', state))) return;
  }
}

/** Whether a server stores a shard, or will once a reverted move has ended. */
async function storesOn(context: AdminContext, shard: number, server: number): Promise<boolean> {
  const { servers, moves = [] } = await readShardServers(context);
  const move = moves.find((each) => each.shard === shard);
  const isCopied = move?.stage === 'copy' && !isUnchanged(move);
  return servers[shard] === server && !isCopied;
}

/** Makes this process the owner on a server. Rejects with MoveTakenOver, and changes nothing there, if another one continues the move. */
export async function own({ context, owned }: Moving, client: ClickHouseClient): Promise<void> {
  const { shard, owner } = owned;
  for (;;) {
    const { state } = await readDoor(client, shard);
    await checkOwner(context, owned);
    if (await setDoor(client, shard, copyNameOf(shard, owner), state)) break;
  }
  await endRemovals(client, shard);
}

/** Hides the rows on the old server before it shows them on the new one, so that no query sees a row twice. */
export async function showWhereStored({ context, move, source, target }: Moving): Promise<void> {
  await showOnServer(context, source, move.from);
  await showOnServer(context, target, move.to);
}

async function showOnServer(context: AdminContext, client: ClickHouseClient, number: number): Promise<void> {
  await makeLocalViews(client, number, readMigrations(), () => readShardServers(context));
}
