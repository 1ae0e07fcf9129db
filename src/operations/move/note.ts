// How far a move of a shard has come, in the registry. It has one owner, the process that took it up last: changes by others are refused.

import { randomBytes } from 'node:crypto';
import type { OwnedMove } from '../../clickhouse/move-rows.js';
import { serversOf } from '../../clickhouse/servers.js';
import { AdministrationError, StateNotLoaded } from '../../contract/errors.js';
import { type ShardMove, type ShardServers, shardServersKey } from '../../registry/documents.js';
import { mirrorRegistry } from '../../registry/mirror.js';
import { changeRegistry, readRegistry } from '../../registry/registry.js';
import { tableOf } from '../../registry/shard-servers.js';
import type { AdminContext } from '../context.js';
import type { Moving } from './moving.js';

/**
 * Notes the move with a new owner. Undefined if the shard is where it is to be. A move that has changed nothing yet is reverted by
 * forgetting it.
 */
export async function noteMove(
  context: AdminContext,
  shard: number,
  to: number,
): Promise<ShardMove | undefined> {
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

/**
 * Notes that from here on servers are changed, so that a revert needs both. The second copy has it before that: otherwise a Redis that
 * is emptied would come back with a move that looks as if it could be forgotten.
 */
export async function noteChanges({ context, owned }: Moving): Promise<void> {
  const note = (by: string) =>
    change(context, owned, (noted) => noteIn(noted, owned.shard, { unchanged_by: by }));
  await note('');
  await copyRegistry(context).catch(async (error: unknown) => {
    await note(owned.owner);
    throw error;
  });
}

export async function endMove({ context, move, owned }: Moving): Promise<void> {
  await change(context, owned, (noted) => ({
    ...withoutMove(noted, move.shard),
    moved: (noted.moved ?? 0) + 1,
  }));
}

/** Where a move leads. */
export function goalOf({ stage, from, to }: ShardMove): number {
  return stage === 'back' ? from : to;
}

/** Whether nothing was changed on either server yet. */
export function isUnchanged({ stage, owner, unchanged_by: by }: ShardMove): boolean {
  return stage === 'copy' && by === owner;
}

export function noteIn(
  { moves: noted = [], ...rest }: ShardServers,
  shard: number,
  what: Partial<Pick<ShardMove, 'stage' | 'unchanged_by'>>,
): ShardServers {
  return { ...rest, moves: noted.map((each) => (each.shard === shard ? { ...each, ...what } : each)) };
}

export function withoutMove({ moves: noted = [], ...rest }: ShardServers, shard: number): ShardServers {
  const others = noted.filter((each) => each.shard !== shard);
  return { ...rest, ...(others.length > 0 && { moves: others }) };
}

export async function readMove(context: AdminContext, shard: number): Promise<ShardMove | undefined> {
  return (await readPlaces(context)).moves?.find((each) => each.shard === shard);
}

/** Rejects with StateNotLoaded if Redis was emptied: in that there are no moves, which decides nothing. */
export async function readPlaces({ redis }: AdminContext): Promise<ShardServers> {
  const { deployment, shardServers } = await readRegistry(redis);
  if (deployment === undefined || shardServers === undefined) throw new StateNotLoaded();
  return shardServers;
}

export async function checkOwner(context: AdminContext, { shard, owner }: OwnedMove): Promise<void> {
  if ((await readMove(context, shard))?.owner !== owner) throw new MoveTakenOver(shard);
}

export class MoveTakenOver extends AdministrationError {
  constructor(shard: number) {
    super(`somebody else has gone on with the move of shard ${shard}`);
  }
}

/** Changes the table while this process owns the move. */
export async function change(
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

export async function copyRegistry({ redis, clickhouse }: AdminContext): Promise<void> {
  await mirrorRegistry(redis, clickhouse);
}

/** When nothing was changed on a server: a worker copies it later if the home does not answer now. */
export async function copyRegistryIfThere(context: AdminContext): Promise<void> {
  await copyRegistry(context).catch(() => undefined);
}
