// What the registry in a backup says. A backup is restored only if each shard is now on the same server as when the backup was made.

import { grouped } from '../../batches.js';
import { AdministrationError } from '../../contract/errors.js';
import {
  type Backup,
  backupsKey,
  type Documents,
  deploymentKey,
  type KeyOf,
  shardServersKey,
} from '../../registry/documents.js';
import { readLoadedRegistry } from '../../registry/registry.js';
import { readSecondCopy } from '../../registry/second-copy.js';
import { checkNoMove } from '../backups.js';
import type { Begun, Restore } from './plan.js';

export type BackedUp = {
  readonly epoch: string | undefined;
  /** Which server had each shard; undefined if there was only one server. */
  readonly servers: readonly number[] | undefined;
  /** The backup's entry. The registry in use may have the name for a later backup. */
  readonly entry: Backup | undefined;
};

export async function readBackedUp({ restored, name }: Restore): Promise<BackedUp> {
  const { documents } = await readSecondCopy(restored[0]);
  const read = <Kind extends keyof Documents>(key: KeyOf<Kind>): Documents[Kind] | undefined =>
    documents[key] === undefined ? undefined : JSON.parse(documents[key]);
  return {
    epoch: read(deploymentKey)?.epoch,
    servers: read(shardServersKey)?.servers,
    entry: read(backupsKey)?.find((backup) => backup.name === name),
  };
}

/**
 * If Redis is loaded, rejects with AdministrationError unless the backup is of this deployment and has each shard's rows on the shard's
 * server.
 */
export async function checkPlaces({ context, epoch }: Begun, backedUp: BackedUp): Promise<void> {
  if (epoch === '') return;
  const { deployment, shardServers } = await readLoadedRegistry(context.redis);
  if ((backedUp.epoch ?? deployment.epoch) !== deployment.epoch)
    throw new AdministrationError(
      'the backup is of another deployment than the one in Redis: it can only be restored into an empty Redis',
    );
  checkNoMove(shardServers?.moves);
  const elsewhere = (shardServers?.servers ?? []).flatMap((server, shard) => {
    const before = backedUp.servers?.[shard] ?? 0;
    return before === server ? [] : [{ shard, before }];
  });
  if (elsewhere.length === 0) return;
  const were = elsewhere.map(({ shard, before }) => `shard ${shard} was on server ${before}`).join(', ');
  const commands = [...grouped(elsewhere, ({ before }) => before)].map(
    ([server, shards]) => `"shards move ${shards.map(({ shard }) => shard).join(' ')} --to ${server}"`,
  );
  throw new AdministrationError(
    `${were} (from 0) when the backup was made: run ${commands.join(' and ')}, then restore`,
  );
}
