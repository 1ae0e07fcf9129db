// The registry's record of a move: how far it got. The process that last took the move over is its owner; changes by any other are refused.

import { randomBytes } from 'node:crypto';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import type { OwnedMove } from '../../clickhouse/move-rows.js';
import { serversOf } from '../../clickhouse/servers.js';
import { AdministrationError, StateNotLoaded } from '../../contract/errors.js';
import type { CrashPoint } from '../../crash-point.js';
import { type ShardMove, type ShardServers, shardServersKey } from '../../registry/documents.js';
import { copyChanges, kindsOfCopies } from '../../registry/outbox.js';
import { changeRegistry, readRegistry } from '../../registry/registry.js';
import { tableOf } from '../../registry/shard-servers.js';
import type { AdminContext } from '../context.js';

/**
 * Records the move with a new owner. Settles with undefined if the shard is already on that server. Reverting a move that has changed
 * nothing yet merely forgets it.
 */
export async function recordMove(
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
    const isReverted = begun?.stage === 'copy' && begun.from === to;
    if (begun !== undefined && goalOf(begun) !== to && !isReverted)
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
      ...(isReverted ? { stage: 'back' } : {}),
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
 * Call it before a server is changed: from then on a revert needs both servers. The second copy gets this first: otherwise a Redis that
 * is emptied and loaded again would have a move that looks as if it had changed nothing.
 */
export async function recordChanges({ context, owned }: Moving): Promise<void> {
  const setUnchangedBy = (unchanged_by: string) =>
    change(context, owned, (document) => withMove(document, owned.shard, { unchanged_by }));
  await setUnchangedBy('');
  await copyRegistry(context).catch(async (error: unknown) => {
    await setUnchangedBy(owned.owner);
    throw error;
  });
}

export async function endMove({ context, move, owned }: Moving): Promise<void> {
  await change(context, owned, (document) => ({
    ...withoutMove(document, move.shard),
    moved: (document.moved ?? 0) + 1,
  }));
}

/** The server where the shard will be when the move has ended. */
export function goalOf({ stage, from, to }: ShardMove): number {
  return stage === 'back' ? from : to;
}

/** Whether neither server has been changed yet. */
export function isUnchanged({ stage, owner, unchanged_by: by }: ShardMove): boolean {
  return stage === 'copy' && by === owner;
}

/** The document with a changed entry for the move of a shard. */
export function withMove(
  { moves = [], ...rest }: ShardServers,
  shard: number,
  changes: Partial<Pick<ShardMove, 'stage' | 'unchanged_by'>>,
): ShardServers {
  return { ...rest, moves: moves.map((each) => (each.shard === shard ? { ...each, ...changes } : each)) };
}

export function withoutMove({ moves = [], ...rest }: ShardServers, shard: number): ShardServers {
  const others = moves.filter((each) => each.shard !== shard);
  return { ...rest, ...(others.length > 0 && { moves: others }) };
}

export async function readMove(context: AdminContext, shard: number): Promise<ShardMove | undefined> {
  return (await readShardServers(context)).moves?.find((each) => each.shard === shard);
}

/** Rejects with StateNotLoaded if Redis was emptied: its lack of moves then means nothing. */
export async function readShardServers({ redis }: AdminContext): Promise<ShardServers> {
  const { deployment, shardServers } = await readRegistry(redis);
  if (deployment === undefined || shardServers === undefined) throw new StateNotLoaded();
  return shardServers;
}

export async function checkOwner(context: AdminContext, { shard, owner }: OwnedMove): Promise<void> {
  if ((await readMove(context, shard))?.owner !== owner) throw new MoveTakenOver(shard);
}

export class MoveTakenOver extends AdministrationError {
  constructor(shard: number) {
    super(`another process has continued the move of shard ${shard}`);
  }
}

/** Changes the document while this process owns the move. */
export async function change(
  { redis, clickhouse }: AdminContext,
  { shard, owner }: OwnedMove,
  decide: (document: ShardServers) => ShardServers,
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
  await copyChanges(redis, clickhouse, { kind: kindsOfCopies.document });
}

/** For moves that have changed no server: if the primary server does not answer, a worker copies the registry later. */
export async function tryCopyRegistry(context: AdminContext): Promise<void> {
  await copyRegistry(context).catch(() => undefined);
}

export type Say = (line: string) => void;

export type Moving = {
  readonly context: AdminContext;
  readonly move: ShardMove;
  readonly owned: OwnedMove;
  readonly source: ClickHouseClient;
  readonly target: ClickHouseClient;
  readonly crash: CrashPoint;
  readonly say: Say;
};
