// Moving a shard to another ClickHouse server. New records wait in Redis while the shard's rows are copied and compared. Then the registry
// names the other server, records are stored there, and the rows are removed from the old server. An interrupted move is continued by the
// same command, since the registry records how far it got. Until the other server has the shard, the move can be reverted. No query sees
// rows twice: the local views of a server hide the rows of shards that are stored elsewhere. Deletions of the shard's accounts wait until
// the move has ended. A move that fails before it has changed a server is forgotten.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { ClickHouseSetBack, reachableServers, serversOf } from '../../clickhouse/servers.js';
import { copyNameOf, isCopyRunning } from '../../clickhouse/store.js';
import { AdministrationError } from '../../contract/errors.js';
import { createCrashPoint } from '../../crash-point.js';
import { readRegistry } from '../../registry/registry.js';
import { assertCurrent } from '../../registry/witness.js';
import type { AdminContext } from '../context.js';
import { renewIndex } from '../renew-index.js';
import { untilNoInsertRuns } from '../running-inserts.js';
import { checkNoRestore, close, endRounds, openIfStored, own, showWhereStored } from './close.js';
import { copyAll, removeAll } from './copy.js';
import {
  change,
  copyRegistry,
  endMove,
  goalOf,
  isUnchanged,
  MoveTakenOver,
  type Moving,
  readMove,
  recordChanges,
  recordMove,
  type Say,
  tryCopyRegistry,
  withMove,
  withoutMove,
} from './note.js';

/** Moves a shard to the server with index `to`. Continues a move that was started, or reverts it if `to` is its source. */
export async function moveShard(
  context: AdminContext,
  shard: number,
  to: number,
  say: Say,
): Promise<'moved' | 'already there'> {
  const { clickhouse, config } = context;
  const { all } = serversOf(clickhouse);
  const crash = createCrashPoint(config.crashAt);
  await checkNoRestore(context.redis);
  await checkServers(context, shard, to);
  const move = await recordMove(context, shard, to);
  if (move === undefined) {
    await tryCopyRegistry(context);
    await openIfStored(context, shard, to);
    return 'already there';
  }
  const owned = { shard, owner: move.owner };
  const [source, target] = [all[move.from] as ClickHouseClient, all[move.to] as ClickHouseClient];
  const moving: Moving = { context, move, owned, source, target, crash, say };
  await finish(moving).catch((error: unknown) => forgetIfUnchanged(moving, error));
  crash('move_ended');
  // A migration creates the views from the registry's second copy.
  await copyRegistry(context);
  await showWhereStored(moving);
  return 'moved';
}

async function finish(moving: Moving): Promise<void> {
  const { context, move, crash } = moving;
  // Before anything is changed, so that a Redis that is emptied and loaded again knows of the move.
  await copyRegistry(context);
  crash('move_noted');
  await (move.stage === 'back' ? revert(moving) : carryOver(moving));
}

/**
 * Forgets a failed move that has changed nothing. Rejects with the reason for the failure, or with what an administrator has to do next.
 */
async function forgetIfUnchanged({ context, move, owned }: Moving, error: unknown): Promise<never> {
  const { shard } = move;
  const recorded = await readMove(context, shard).catch(() => {
    throw error;
  });
  // A process that takes over a move makes ClickHouse refuse the statements of the previous owner.
  if (recorded?.owner !== move.owner) throw new MoveTakenOver(shard);
  if (isUnchanged(recorded)) {
    await change(context, owned, (document) => withoutMove(document, shard));
    await tryCopyRegistry(context);
  } else if (!(error instanceof AdministrationError)) {
    await checkServers(context, shard, goalOf(recorded));
  }
  throw error;
}

async function carryOver(moving: Moving): Promise<void> {
  const { context, move, owned, source, target, crash, say } = moving;
  const { shard, to } = move;
  if (move.stage === 'copy') {
    await endRounds(moving);
    await checkCurrent(moving);
    if (isUnchanged(move)) {
      await checkServers(context, shard, to);
      await recordChanges(moving);
    }
    await close(moving);
    crash('shard_closed');
    await copyAll(moving);
    // Before anything uses the target. Since the keys were copied, a rebuild may have added keys on the old server; and workers' filters
    // may lack keys that were removed from the target.
    await renewIndex(context, target, shard, copyNameOf(shard, owned.owner));
    crash('index_renewed');
    await change(context, owned, (document) => ({
      ...withMove(document, shard, { stage: 'remove' }),
      servers: document.servers.map((server, number) => (number === shard ? to : server)),
    }));
    crash('shard_switched');
  }
  // Before anything is stored on the target, so that a Redis that is emptied and loaded again knows where the shard is.
  await copyRegistry(context);
  crash('switch_copied');
  await showWhereStored(moving);
  await openIfStored(context, shard, to);
  crash('shard_opened');
  say(`shard ${shard}: stored by server ${to}`);
  await removeAll(moving, source);
  await endMove(moving);
}

/** Rejects if a server was set back: a recovery covers only the shards that a server has at the time. */
async function checkCurrent({ context, move }: Moving): Promise<void> {
  const { shard, from } = move;
  await assertCurrent(context.redis, context.clickhouse).catch((error: unknown) => {
    if (!(error instanceof ClickHouseSetBack) || isUnchanged(move)) throw error;
    throw new AdministrationError(
      `${error.message}, once "shards move ${shard} --to ${from}" has reverted the move`,
    );
  });
}

/** Removes what was copied, and stores the shard on its former server again. */
async function revert(moving: Moving): Promise<void> {
  const { context, move, source, target, crash, say } = moving;
  const { shard } = move;
  // From here on ClickHouse refuses copies by the process that started the move. This waits for a copy that is running.
  await own(moving, target);
  await untilNoInsertRuns(() => isCopyRunning(target, shard));
  await removeAll(moving, target);
  await openIfStored(context, shard, move.from);
  crash('shard_opened');
  // Workers may have loaded the other server's generation of the index.
  await renewIndex(context, source, shard);
  await endMove(moving);
  say(`shard ${shard}: stored by server ${move.from} again`);
}

/** Rejects with AdministrationError unless every server answers that the move or its continuation needs. */
async function checkServers(context: AdminContext, shard: number, to: number): Promise<void> {
  const { shardServers } = await readRegistry(context.redis);
  const servers = serversOf(context.clickhouse);
  const move = shardServers?.moves?.find((each) => each.shard === shard);
  const from = shardServers?.servers[shard];
  if (servers.isOne || from === undefined) return;
  const isOpen = move === undefined || isUnchanged(move);
  const ends = isOpen ? [from, to] : [move.from, move.to];
  // The primary server has the second copy of the registry, which must be current before a server is changed.
  const needed = isOpen && from === to ? [to] : [0, ...ends];
  const reachable = await reachableServers(servers);
  const away = needed.find((server) => servers.all[server] !== undefined && !reachable.has(server));
  if (away === undefined) return;
  const isAway = `ClickHouse server ${away} (from 0) does not answer`;
  if (isOpen) throw new AdministrationError(isAway);
  const moveTo = (goal: number) => `"shards move ${shard} --to ${goal}"`;
  const howToContinue = `When the server answers, ${moveTo(goalOf(move))} continues the move`;
  if (move.stage === 'remove') throw new AdministrationError(`${isAway}. ${howToContinue} of shard ${shard}`);
  const isClosed = `Shard ${shard} stores nothing until its move has ended; its records wait in Redis`;
  const orRevert = move.stage === 'copy' ? `, and ${moveTo(move.from)} reverts it` : '';
  throw new AdministrationError(`${isAway}. ${isClosed}. ${howToContinue}${orRevert}`);
}
