// A backup is restored only if each shard is now on the server that has its rows in the backup.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { AdministrationError } from '../../contract/errors.js';
import {
  type Deployment,
  deploymentKey,
  type ShardServers,
  shardServersKey,
} from '../../registry/documents.js';
import { readMirror } from '../../registry/mirror.js';
import { readRegistry } from '../../registry/registry.js';
import { checkNoMove } from '../backups.js';
import { RedisChanged, type Restore } from './confirm.js';

/** Which server had which shard when the backup was made; undefined if there was only one server. */
export async function readPlaces([primary]: Restore['restored']): Promise<ShardServers | undefined> {
  const text = (await readMirror(primary as ClickHouseClient)).documents[shardServersKey];
  return text === undefined ? undefined : (JSON.parse(text) as ShardServers);
}

/** Rejects with AdministrationError unless the backup is of this deployment and has each shard's rows on the shard's server. */
export async function checkPlaces({ context, restored }: Restore): Promise<void> {
  const { shardServers, deployment } = await readRegistry(context.redis);
  // This is called only when Redis is loaded.
  if (deployment === undefined) throw new RedisChanged();
  const own = (await readMirror(restored[0] as ClickHouseClient)).documents[deploymentKey];
  if (own !== undefined && (JSON.parse(own) as Deployment).epoch !== deployment.epoch)
    throw new AdministrationError(
      'the backup is of another deployment than the one in Redis: it can only be restored into an empty Redis',
    );
  checkNoMove(shardServers?.moves);
  const then = await readPlaces(restored);
  const elsewhere = (shardServers?.servers ?? []).flatMap((server, shard) => {
    const before = then?.servers[shard] ?? 0;
    return before === server ? [] : [{ shard, before }];
  });
  if (elsewhere.length === 0) return;
  const were = elsewhere.map(({ shard, before }) => `shard ${shard} was on server ${before}`).join(', ');
  const servers = [...new Set(elsewhere.map(({ before }) => before))];
  const commands = servers.map((server) => {
    const shards = elsewhere.filter(({ before }) => before === server).map(({ shard }) => shard);
    return `"shards move ${shards.join(' ')} --to ${server}"`;
  });
  throw new AdministrationError(
    `${were} (from 0) when the backup was made: run ${commands.join(' and ')}, then restore`,
  );
}
