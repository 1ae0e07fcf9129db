// Closing a shard for its move, and opening it: which of the two servers stores it, and shows it.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { raiseGeneration } from '../../clickhouse/key-index.js';
import { readMigrations } from '../../clickhouse/migrate.js';
import { giveUp, takeOver } from '../../clickhouse/move-rows.js';
import { serversOf } from '../../clickhouse/servers.js';
import { closeShard, openShard, refuseSegments } from '../../clickhouse/shard-limits.js';
import { makeLocalViews } from '../../clickhouse/spanning-views.js';
import { copyNameOf, isCopyRunning, isInsertOfShardRunning } from '../../clickhouse/store.js';
import { AdministrationError, StateNotLoaded } from '../../contract/errors.js';
import { takeFence } from '../../privacy/deletion/fences.js';
import { withMaintenanceLock } from '../../privacy/deletion/maintenance-lock.js';
import {
  ConcurrentUpdate,
  readDeletion,
  readUnfinishedMembers,
  updateDeletion,
} from '../../privacy/deletion/request.js';
import { endRuns } from '../../privacy/retention/expired-rows.js';
import { registryKeys, shardKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { readLoadedRegistry } from '../../registry/registry.js';
import type { AdminContext } from '../context.js';
import { insertRuns, type Moving, untilOrRefused } from './moving.js';
import { checkOwner, isUnchanged, readPlaces } from './note.js';

/** From here on only this process stores rows of the shard, on either server, by copying. */
export async function close(moving: Moving): Promise<void> {
  const { context, move, owned, source, target } = moving;
  const { shard } = move;
  const { redis } = context;
  await showWhereTheyAreOn(context, target, move.to);
  await own(moving, target);
  await closeShard(source, shard);
  await closeShard(target, shard, copyNameOf(shard, owned.owner));
  // A process that takes over the move from here on closes the server after this, so the server refuses these copies.
  await checkOwner(context, owned);
  for (const client of [source, target])
    await untilOrRefused(async () => !(await isInsertOfShardRunning(client, shard)), insertRuns);
  await untilOrRefused(async () => !(await isCopyRunning(target, shard)), insertRuns);
  const { deployment } = await readLoadedRegistry(redis);
  const fence = await takeFence({ redis, epoch: deployment.epoch }, shard);
  // Copying rows copies no tokens. So a worker that read a segment before the move asks Redis again and looks for its marker.
  await refuseSegments(target, shard, fence);
}

/**
 * Settles when no round of deletions, no end of retention and no retry of failed rows works on the shard. The ones that begin
 * later know of the move. A round that was chosen before, or stood still, is overtaken.
 */
export async function endRounds({ context: { redis }, source }: Moving): Promise<void> {
  const { deployment } = await readLoadedRegistry(redis);
  for (const { requestId } of await readUnfinishedMembers(redis, deployment.epoch)) {
    for (;;) {
      const request = await readDeletion(redis, requestId);
      if (request === undefined || request.status === 'complete') break;
      const isDone = await updateDeletion(redis, request, {}).then(
        () => true,
        (error: unknown) => {
          if (error instanceof ConcurrentUpdate) return false;
          throw error;
        },
      );
      if (isDone) break;
    }
  }
  const end = async () => {
    await endRuns(source);
    return 'free';
  };
  await untilOrRefused(
    async () => (await withMaintenanceLock(redis, 'move', end)) === 'free',
    'a round of deletions or a restore still runs; try again when it has ended',
  );
  await checkNoRestore(redis);
}

/** A restore that was cut off has exchanged the tables of some servers only. */
export async function checkNoRestore(redis: AdminContext['redis']): Promise<void> {
  if ((await redis.exists(registryKeys.restoringBackup)) === 1)
    throw new AdministrationError('a restore of a backup runs or was cut off: run it again first');
}

/**
 * Opens the shard on the server that has it: a process that was paused may have closed it after the move was over. If the shard is on
 * its way to another server by now, or there, it was this process that was paused, so it closes the shard again.
 */
export async function openIfStored(context: AdminContext, shard: number, server: number): Promise<void> {
  const client = serversOf(context.clickhouse).all[server] as ClickHouseClient;
  let isOpen: boolean | undefined;
  for (;;) {
    const isStored = await storesOn(context, shard, server);
    if (isStored === isOpen) return;
    await (isStored ? openShard(client, shard) : closeShard(client, shard));
    isOpen = isStored;
  }
}

/** Whether a server stores a shard now, or does as soon as a move that is taken back has ended. */
async function storesOn(context: AdminContext, shard: number, server: number): Promise<boolean> {
  const { servers, moves: noted = [] } = await readPlaces(context);
  const move = noted.find((each) => each.shard === shard);
  const isCopied = move?.stage === 'copy' && !isUnchanged(move);
  return servers[shard] === server && !isCopied;
}

/** Makes this process the owner on a server. If it comes too late for that, since it was paused, it leaves nothing there. */
export async function own({ context, owned }: Moving, client: ClickHouseClient): Promise<void> {
  await checkOwner(context, owned);
  await takeOver(client, owned);
  await checkOwner(context, owned).catch(async (error: unknown) => {
    await giveUp(client, owned);
    throw error;
  });
}

/**
 * Gives the shard's index of keys on a server a new generation, and tells Redis before anybody asks that server: a rebuild begins
 * again, and workers load their filters again, which may lack keys that were removed from the other server meanwhile. `name`: of
 * the only statements that the server takes.
 */
export async function renewIndex(
  { context: { redis }, move: { shard } }: Moving,
  client: ClickHouseClient,
  name?: string,
): Promise<void> {
  const { deployment } = await readLoadedRegistry(redis);
  const state = shardKeys.state(shard);
  const known = await redis.hget(state, 'keys_generation');
  const generation = await raiseGeneration(client, shard, known, name);
  if (generation === undefined) return;
  const noted = await runScript(redis, scripts.keysIndexed, [state], [deployment.epoch, '0', generation]);
  if (noted === null) throw new StateNotLoaded();
}

/** Hides the rows on the old server before it shows them on the new one, so no query sees a row twice. */
export async function showWhereTheyAre({ context, move, source, target }: Moving): Promise<void> {
  await showWhereTheyAreOn(context, source, move.from);
  await showWhereTheyAreOn(context, target, move.to);
}

export async function showWhereTheyAreOn(
  context: AdminContext,
  client: ClickHouseClient,
  number: number,
): Promise<void> {
  await makeLocalViews(client, number, readMigrations(), () => readPlaces(context));
}
