// Moving a shard to another ClickHouse server. Its records wait in Redis while its rows are copied and compared; then the
// registry names the other server, its records are stored there, and the old server's rows are removed. If a move is
// interrupted, run the same command again: the registry records how far it got. Until the other server has the shard, the
// move can be reverted. Nobody sees rows twice: the local views of a server hide the rows of a shard that is stored
// elsewhere. Deletions of the shard's accounts wait until the end. A move that fails before it has changed anything on a server
// is forgotten.

import { randomBytes } from 'node:crypto';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { raiseGeneration } from '../clickhouse/key-index.js';
import { readMigrations } from '../clickhouse/migrate.js';
import {
  copyRows,
  endOwnership,
  giveUp,
  type MovedTable,
  movedTables,
  type OwnedMove,
  readFingerprint,
  readPartitions,
  removeRows,
  takeOver,
} from '../clickhouse/move-rows.js';
import { reachableServers, serversOf } from '../clickhouse/servers.js';
import { closeShard, openShard, refuseSegments } from '../clickhouse/shard-limits.js';
import { makeLocalViews } from '../clickhouse/spanning-views.js';
import { copyNameOf, isCopyRunning, isInsertOfShardRunning } from '../clickhouse/store.js';
import { AdministrationError, StateNotLoaded } from '../contract/errors.js';
import { moves } from '../contract/limits.js';
import { type CrashPoint, createCrashPoint } from '../crash-point.js';
import { takeFence } from '../privacy/deletion/fences.js';
import { withMaintenanceLock } from '../privacy/deletion/maintenance-lock.js';
import {
  ConcurrentUpdate,
  readDeletion,
  readUnfinishedMembers,
  updateDeletion,
} from '../privacy/deletion/request.js';
import { endRuns } from '../privacy/retention/expired-rows.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { type ShardMove, type ShardServers, shardServersKey } from '../registry/documents.js';
import { mirrorRegistry } from '../registry/mirror.js';
import { changeRegistry, readLoadedRegistry, readRegistry } from '../registry/registry.js';
import { tableOf } from '../registry/shard-servers.js';
import { stateLoads } from '../tuning.js';
import { untilTrue } from '../wait.js';
import type { AdminContext } from './context.js';

type Say = (line: string) => void;

type Moving = {
  readonly context: AdminContext;
  readonly move: ShardMove;
  readonly owned: OwnedMove;
  readonly source: ClickHouseClient;
  readonly target: ClickHouseClient;
  readonly crash: CrashPoint;
  readonly say: Say;
};

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

/**
 * Opens the shard on the server that has it: a process that was paused may have closed it after the move was over. If the shard is on
 * its way to another server by now, or there, it was this process that was paused, so it closes the shard again.
 */
async function openIfStored(context: AdminContext, shard: number, server: number): Promise<void> {
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

/** Where a move leads. */
export function goalOf({ stage, from, to }: ShardMove): number {
  return stage === 'back' ? from : to;
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

/**
 * Notes that from here on servers are changed, so that a revert needs both. The second copy has it before that: otherwise a Redis that
 * is emptied would come back with a move that looks as if it could be forgotten.
 */
async function noteChanges({ context, owned }: Moving): Promise<void> {
  const note = (by: string) =>
    change(context, owned, (noted) => noteIn(noted, owned.shard, { unchanged_by: by }));
  await note('');
  await copyRegistry(context).catch(async (error: unknown) => {
    await note(owned.owner);
    throw error;
  });
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

function noteIn(
  { moves: noted = [], ...rest }: ShardServers,
  shard: number,
  what: Partial<Pick<ShardMove, 'stage' | 'unchanged_by'>>,
): ShardServers {
  return { ...rest, moves: noted.map((each) => (each.shard === shard ? { ...each, ...what } : each)) };
}

/** Whether nothing was changed on either server yet. */
function isUnchanged({ stage, owner, unchanged_by: by }: ShardMove): boolean {
  return stage === 'copy' && by === owner;
}

/**
 * Gives the shard's index of keys on a server a new generation, and tells Redis before anybody asks that server: a rebuild begins
 * again, and workers load their filters again, which may lack keys that were removed from the other server meanwhile. `name`: of
 * the only statements that the server takes.
 */
async function renewIndex(
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

async function endMove({ context, move, owned }: Moving): Promise<void> {
  await change(context, owned, (noted) => ({
    ...withoutMove(noted, move.shard),
    moved: (noted.moved ?? 0) + 1,
  }));
}

function withoutMove({ moves: noted = [], ...rest }: ShardServers, shard: number): ShardServers {
  const others = noted.filter((each) => each.shard !== shard);
  return { ...rest, ...(others.length > 0 && { moves: others }) };
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

/**
 * Notes the move with a new owner. Undefined if the shard is where it is to be. A move that has changed nothing yet is reverted by
 * forgetting it.
 */
async function noteMove(context: AdminContext, shard: number, to: number): Promise<ShardMove | undefined> {
  const { redis, clickhouse } = context;
  const servers = serversOf(clickhouse);
  const owner = randomBytes(12).toString('hex');
  return changeRegistry(redis, ({ shardServers }) => {
    if (shardServers === undefined || servers.isOne)
      throw new AdministrationError('CLICKHOUSE_URL names one server: there is nowhere to move shards to');
    const from = shardServers.servers[shard];
    if (from === undefined) throw new AdministrationError(`there is no shard ${shard}`);
    if (servers.all[to] === undefined) throw new AdministrationError(`there is no server ${to}`);
    const begun = shardServers.moves?.find((move) => move.shard === shard);
    const isTakenBack = begun?.stage === 'copy' && begun.from === to;
    if (begun !== undefined && goalOf(begun) !== to && !isTakenBack)
      throw new AdministrationError(
        `shard ${shard} is already moving to server ${goalOf(begun)}; finish that first: "shards move ${shard} --to ${goalOf(begun)}"`,
      );
    if (begun === undefined && from === to) return { changes: [], result: undefined };
    if (begun !== undefined && isUnchanged(begun) && from === to) {
      const document = withoutMove(shardServers, shard);
      servers.setTable(tableOf(document));
      return { changes: [{ key: shardServersKey, document }], result: undefined };
    }
    const began_at = new Date().toISOString();
    const move: ShardMove = {
      ...(begun ?? { shard, from, to, stage: 'copy', began_at }),
      ...(isTakenBack ? { stage: 'back' } : {}),
      owner,
      ...(begun === undefined || isUnchanged(begun) ? { unchanged_by: owner } : {}),
    };
    const moved = [...(shardServers.moves ?? []).filter((each) => each.shard !== shard), move];
    const document: ShardServers = { ...shardServers, moves: moved };
    servers.setTable(tableOf(document));
    return { changes: [{ key: shardServersKey, document }], result: move };
  });
}

async function readMove(context: AdminContext, shard: number): Promise<ShardMove | undefined> {
  return (await readPlaces(context)).moves?.find((each) => each.shard === shard);
}

/** Rejects with StateNotLoaded if Redis was emptied: in that there are no moves, which decides nothing. */
async function readPlaces({ redis }: AdminContext): Promise<ShardServers> {
  const { deployment, shardServers } = await readRegistry(redis);
  if (deployment === undefined || shardServers === undefined) throw new StateNotLoaded();
  return shardServers;
}

async function checkOwner(context: AdminContext, { shard, owner }: OwnedMove): Promise<void> {
  if ((await readMove(context, shard))?.owner !== owner) throw new MoveTakenOver(shard);
}

/** Makes this process the owner on a server. If it comes too late for that, since it was paused, it leaves nothing there. */
async function own({ context, owned }: Moving, client: ClickHouseClient): Promise<void> {
  await checkOwner(context, owned);
  await takeOver(client, owned);
  await checkOwner(context, owned).catch(async (error: unknown) => {
    await giveUp(client, owned);
    throw error;
  });
}

class MoveTakenOver extends AdministrationError {
  constructor(shard: number) {
    super(`somebody else has gone on with the move of shard ${shard}`);
  }
}

/** Changes the table while this process owns the move. */
async function change(
  { redis, clickhouse }: AdminContext,
  { shard, owner }: OwnedMove,
  decide: (noted: ShardServers) => ShardServers,
): Promise<void> {
  const document = await changeRegistry(redis, ({ shardServers }) => {
    const move = shardServers?.moves?.find((each) => each.shard === shard);
    if (shardServers === undefined || move?.owner !== owner) throw new MoveTakenOver(shard);
    const decided = decide(shardServers);
    return { changes: [{ key: shardServersKey, document: decided }], result: decided };
  });
  serversOf(clickhouse).setTable(tableOf(document));
}

async function copyRegistry({ redis, clickhouse }: AdminContext): Promise<void> {
  await mirrorRegistry(redis, clickhouse);
}

/** When nothing was changed on a server: a worker copies it later if the home does not answer now. */
async function copyRegistryIfThere(context: AdminContext): Promise<void> {
  await copyRegistry(context).catch(() => undefined);
}

/**
 * Settles when no round of deletions, no end of retention and no retry of failed rows works on the shard. The ones that begin
 * later know of the move. A round that was chosen before, or stood still, is overtaken.
 */
async function endRounds({ context: { redis }, source }: Moving): Promise<void> {
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
async function checkNoRestore(redis: AdminContext['redis']): Promise<void> {
  if ((await redis.exists(registryKeys.restoringBackup)) === 1)
    throw new AdministrationError('a restore of a backup runs or was cut off: run it again first');
}

/** From here on only this process stores rows of the shard, on either server, by copying. */
async function close(moving: Moving): Promise<void> {
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

const insertRuns = 'an insert still runs in ClickHouse; try again when it has ended';

/** Copies what the other server lacks. Settles when every table has the same rows on both. */
async function copyAll(moving: Moving): Promise<void> {
  const { move, owned, source, target, crash, say } = moving;
  for (const table of movedTables) {
    const here = await readPartitions(source, table, move.shard);
    const there = await readPartitions(target, table, move.shard);
    // An earlier try has copied it, and meanwhile a deletion took all of it.
    for (const partition of there.keys())
      if (!here.has(partition)) await removeRows(target, table, owned, partition);
    const total = [...here.values()].reduce((sum, rows) => sum + rows, 0);
    let done = 0;
    for (const [partition, rows] of here) {
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
    const [here, there] = [await read(source), await read(target)];
    if (here === there) return;
    if (!there.startsWith('0 ')) await removeRows(target, table, owned, partition);
    await copyRows(source, target, table, owned, partition, progress);
  }
  const [here, there] = [await read(source), await read(target)];
  if (here !== there)
    throw new AdministrationError(
      `the rows of shard ${move.shard} in ${table} differ after they were copied: try again`,
    );
}

/** Removes the rows of one of the two servers. It stays closed for the shard. */
async function removeAll(moving: Moving, from: ClickHouseClient): Promise<void> {
  const { move, owned, source, target, crash, say } = moving;
  await own(moving, from);
  for (const table of movedTables) {
    if ((await readPartitions(from, table, move.shard)).size > 0) await removeRows(from, table, owned);
    crash('rows_removed');
    say(`shard ${move.shard}: ${table} removed from server ${from === source ? move.from : move.to}`);
  }
  for (const client of [source, target]) await endOwnership(client, move.shard);
}

/** Hides the rows on the old server before it shows them on the new one, so no query sees a row twice. */
async function showWhereTheyAre({ context, move, source, target }: Moving): Promise<void> {
  await showWhereTheyAreOn(context, source, move.from);
  await showWhereTheyAreOn(context, target, move.to);
}

async function showWhereTheyAreOn(
  context: AdminContext,
  client: ClickHouseClient,
  number: number,
): Promise<void> {
  await makeLocalViews(client, number, readMigrations(), () => readPlaces(context));
}

async function untilOrRefused(isTrue: () => Promise<boolean>, otherwise: string): Promise<void> {
  if (!(await untilTrue(isTrue, { msMax: stateLoads.insertMsMax }))) throw new AdministrationError(otherwise);
}
