// Moving a shard to another ClickHouse server. Its records wait in Redis while its rows are copied and compared; then the
// registry names the other server, its records are stored there, and the old server's rows are removed. If a move is
// interrupted, run the same command again: the registry records how far it got. Until the other server has the shard, the
// move can be reverted. Nobody sees rows twice: the local views of a server hide the rows of a shard that is stored
// elsewhere. Deletions of the shard's accounts wait until the end. A move that fails before it has changed anything on a server
// is forgotten.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { reachableServers, serversOf } from '../../clickhouse/servers.js';
import { closeShard, openShard } from '../../clickhouse/shard-limits.js';
import { copyNameOf, isCopyRunning } from '../../clickhouse/store.js';
import { AdministrationError } from '../../contract/errors.js';
import { createCrashPoint } from '../../crash-point.js';
import { readRegistry } from '../../registry/registry.js';
import type { AdminContext } from '../context.js';
import {
  checkNoRestore,
  close,
  endRounds,
  openIfStored,
  renewIndex,
  showWhereTheyAre,
  showWhereTheyAreOn,
} from './close.js';
import { copyAll, removeAll } from './copy.js';
import { insertRuns, type Moving, type Say, untilOrRefused } from './moving.js';
import {
  change,
  copyRegistry,
  copyRegistryIfThere,
  endMove,
  goalOf,
  isUnchanged,
  MoveTakenOver,
  noteChanges,
  noteIn,
  noteMove,
  readMove,
  withoutMove,
} from './note.js';

/**
 * Moves a shard to the server with this index. If a move is under way, continues it, or reverts it when the target is its
 * source. Settles when nothing is left to do.
 */
export async function moveShard(
  context: AdminContext,
  shard: number,
  to: number,
  say: Say,
): Promise<'moved' | 'there'> {
  const { clickhouse, config } = context;
  const { all } = serversOf(clickhouse);
  const crash = createCrashPoint(config.crashAt);
  await checkNoRestore(context.redis);
  await checkServers(context, shard, to);
  const move = await noteMove(context, shard, to);
  if (move === undefined) {
    await copyRegistryIfThere(context);
    await openIfStored(context, shard, to);
    return 'there';
  }
  const owned = { database: config.clickhouseDatabase, shard, owner: move.owner };
  const [source, target] = [all[move.from] as ClickHouseClient, all[move.to] as ClickHouseClient];
  const moving: Moving = { context, move, owned, source, target, crash, say };
  await finish(moving).catch((error: unknown) => forgetIfUnchanged(moving, error));
  crash('move_ended');
  // A migration makes the views by the second copy.
  await copyRegistry(context);
  await showWhereTheyAre(moving);
  return 'moved';
}

async function finish(moving: Moving): Promise<void> {
  const { context, move, crash } = moving;
  // Before anything is changed: a Redis that is emptied later must come back knowing of the move.
  await copyRegistry(context);
  crash('move_noted');
  await (move.stage === 'back' ? takeBack(moving) : carryOver(moving));
}

/** Rejects with why the move failed, or with what an administrator has to know about it. */
async function forgetIfUnchanged({ context, move, owned }: Moving, error: unknown): Promise<never> {
  const { shard } = move;
  const noted = await readMove(context, shard).catch(() => {
    throw error;
  });
  // A process that takes a move over makes ClickHouse refuse the statements of the previous owner.
  if (noted?.owner !== move.owner) throw new MoveTakenOver(shard);
  if (isUnchanged(noted)) {
    await change(context, owned, (document) => withoutMove(document, shard));
    await copyRegistryIfThere(context);
  } else if (!(error instanceof AdministrationError)) {
    await checkServers(context, shard, goalOf(noted));
  }
  throw error;
}

async function carryOver(moving: Moving): Promise<void> {
  const { context, move, owned, source, target, crash, say } = moving;
  const { shard, to } = move;
  if (move.stage === 'copy') {
    await endRounds(moving);
    if (isUnchanged(move)) {
      await checkServers(context, shard, to);
      await noteChanges(moving);
    }
    await close(moving);
    crash('shard_closed');
    await copyAll(moving);
    // A rebuild may have added keys on the old server since they were copied, so it has to begin again.
    await renewIndex(moving, target, copyNameOf(shard, owned.owner));
    crash('index_renewed');
    await change(context, owned, (noted) => ({
      ...noteIn(noted, shard, { stage: 'remove' }),
      servers: noted.servers.map((server, number) => (number === shard ? to : server)),
    }));
    crash('shard_switched');
  }
  // Before anything is stored on the other server: a Redis that is emptied now must come back knowing of it.
  await copyRegistry(context);
  crash('switch_copied');
  await showWhereTheyAre(moving);
  await openShard(target, shard);
  crash('shard_opened');
  say(`shard ${shard}: stored by server ${to}`);
  await removeAll(moving, source);
  await endMove(moving);
}

/** Removes what was copied; then the shard is stored where it always was. */
async function takeBack(moving: Moving): Promise<void> {
  const { context, move, source, target, crash, say } = moving;
  const { shard } = move;
  await showWhereTheyAreOn(context, target, move.to);
  // From here on, ClickHouse refuses copies by the process that began the move, and none is under way.
  await closeShard(target, shard);
  await untilOrRefused(async () => !(await isCopyRunning(target, shard)), insertRuns);
  await removeAll(moving, target);
  await openShard(source, shard);
  crash('shard_opened');
  // Workers may know the generation that the other server was given.
  await renewIndex(moving, source);
  await endMove(moving);
  say(`shard ${shard}: stored by server ${move.from} again`);
}

/** Rejects with AdministrationError unless all servers answer that the move to this server, or its continuation, needs. */
async function checkServers(context: AdminContext, shard: number, to: number): Promise<void> {
  const { shardServers } = await readRegistry(context.redis);
  const servers = serversOf(context.clickhouse);
  const move = shardServers?.moves?.find((each) => each.shard === shard);
  const from = shardServers?.servers[shard];
  if (servers.isOne || from === undefined) return;
  const isOpen = move === undefined || isUnchanged(move);
  const ends = isOpen ? [from, to] : [move.from, move.to];
  // The home has the second copy of the registry. What changes nothing on a server needs no copy of it at once.
  const needed = isOpen && from === to ? [to] : [0, ...ends];
  const there = await reachableServers(servers);
  const away = needed.find((server) => servers.all[server] !== undefined && !there.has(server));
  if (away === undefined) return;
  const isAway = `ClickHouse server ${away} (from 0) does not answer`;
  if (isOpen) throw new AdministrationError(isAway);
  const moveTo = (goal: number) => `"shards move ${shard} --to ${goal}"`;
  const goesOn = `When the server answers, ${moveTo(goalOf(move))} goes on with the move`;
  if (move.stage === 'remove') throw new AdministrationError(`${isAway}. ${goesOn} of shard ${shard}`);
  const isClosed = `Shard ${shard} stores nothing until its move has ended; its records wait in Redis`;
  const orRevert = move.stage === 'copy' ? `, and ${moveTo(move.from)} reverts it` : '';
  throw new AdministrationError(`${isAway}. ${isClosed}. ${goesOn}${orRevert}`);
}
