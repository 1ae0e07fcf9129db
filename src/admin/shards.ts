// The shards and the ClickHouse servers that have their rows, for administrators.

import { readSizes } from '../clickhouse/move-rows.js';
import { reachableServers, serversOf } from '../clickhouse/servers.js';
import type { AdministrationAnswers } from '../contract/administration-answers.js';
import { AdministrationError } from '../contract/errors.js';
import type { AdminContext } from '../operations/context.js';
import { moveShard } from '../operations/move/move-shard.js';
import { goalOf } from '../operations/move/note.js';
import { readBacklog } from '../redis/backlog.js';
import { readLoadedRegistry } from '../registry/registry.js';
import type { CommandContext } from './command.js';

export type ShardView = AdministrationAnswers['listShards'][number];

/** All shards, with their servers and sizes. Reads one column of all rows. */
export async function listShards({ redis, clickhouse }: AdminContext): Promise<ShardView[]> {
  const { deployment, shardServers } = await readLoadedRegistry(redis);
  const servers = serversOf(clickhouse);
  const reachable = await reachableServers(servers);
  const sizes = await Promise.all(
    servers.all.map((client, number) =>
      reachable.has(number) ? readSizes(client).catch(() => undefined) : undefined,
    ),
  );
  return Promise.all(
    Array.from({ length: deployment.shards }, async (_, shard) => {
      const server = shardServers?.servers[shard] ?? 0;
      const sizeOn = (number: number) =>
        sizes[number] === undefined ? null : (sizes[number].get(shard) ?? { rows: 0, bytes: 0 });
      const size = sizeOn(server);
      const backlog = await readBacklog(redis, shard);
      const move = shardServers?.moves?.find((each) => each.shard === shard);
      return {
        shard,
        server,
        rows: size?.rows ?? null,
        bytes: size?.bytes ?? null,
        backlog_rows: backlog.rows,
        backlog_bytes: backlog.bytes,
        moving_to: move === undefined ? null : goalOf(move),
        moved_rows: move === undefined ? null : (sizeOn(goalOf(move))?.rows ?? null),
      };
    }),
  );
}

/** Moves shards one after another. Settles with those that were not on the server before. `server` counts from 0. */
export async function moveShards(context: CommandContext, shards: readonly number[], server: number) {
  const moved: number[] = [];
  for (const shard of shards) {
    if ((await moveShard(context, shard, server, context.say)) === 'moved') moved.push(shard);
  }
  return { server, moved };
}

/** Continues interrupted moves, then moves shards, the smallest first, until all servers have about equally many. */
export async function balanceShards(context: CommandContext) {
  const count = serversOf(context.clickhouse).all.length;
  if (count === 1)
    throw new AdministrationError('CLICKHOUSE_URL names one server: there is nothing to balance');
  const moved: { shard: number; server: number }[] = [];
  for (;;) {
    const shards = await listShards(context);
    const interrupted = shards.find(({ moving_to: to }) => to !== null);
    const next =
      interrupted === undefined
        ? nextMove(shards, count)
        : { ...interrupted, to: interrupted.moving_to as number };
    if (next === undefined) return { moved };
    await moveShard(context, next.shard, next.to, context.say);
    moved.push({ shard: next.shard, server: next.to });
  }
}

/**
 * The next move: the smallest shard of the server with the most shards goes to the server with the fewest. Undefined if the servers are
 * balanced.
 */
function nextMove(
  shards: readonly Pick<ShardView, 'shard' | 'server' | 'rows'>[],
  servers: number,
): { readonly shard: number; readonly to: number } | undefined {
  const counts = Array.from({ length: servers }, (_, index) => ({
    server: index,
    held: shards.filter(({ server }) => server === index),
  })).sort((a, b) => a.held.length - b.held.length || a.server - b.server);
  const [fewest, most] = [counts[0], counts.at(-1)];
  if (fewest === undefined || most === undefined || most.held.length - fewest.held.length < 2)
    return undefined;
  const [smallest] = [...most.held].sort((a, b) => (a.rows ?? 0) - (b.rows ?? 0) || a.shard - b.shard);
  return smallest === undefined ? undefined : { shard: smallest.shard, to: fewest.server };
}
