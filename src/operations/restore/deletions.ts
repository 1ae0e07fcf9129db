// Deletion requests after a restore or a loss put tables back to an older state: complete ones are carried out again, pending ones start
// again.

import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { AdministrationError } from '../../contract/errors.js';
import { backups } from '../../contract/limits.js';
import { type DeletedRequest, deleteAgain } from '../../privacy/deletion/delete-again.js';
import { readDeletedUsers } from '../../privacy/deletion/deleted-users.js';
import { withMaintenanceLock } from '../../privacy/deletion/maintenance-lock.js';
import {
  ConcurrentUpdate,
  type DeletionRequest,
  readDeletion,
  readUnfinishedMembers,
  updateDeletion,
} from '../../privacy/deletion/request.js';
import { hashPieces } from '../../redis/hash-pieces.js';
import { registryKeys } from '../../redis/keys.js';
import { readLoadedRegistry } from '../../registry/registry.js';
import type { AdminContext } from '../context.js';
import type { RestoredBackup } from './plan.js';

/** Runs `work` while no deletion round is running or can start. `owner`: the value of the lock that stops them. */
export async function withoutDeletions<Result>(
  { redis }: AdminContext,
  work: (owner: string) => Promise<Result>,
): Promise<Result> {
  const done = await withMaintenanceLock(
    redis,
    'restore',
    ({ owner }) => work(owner),
    backups.roundWaitMsMax,
  );
  if (done === 'locked')
    throw new AdministrationError('a round of deletions is still running; try again when it has ended');
  return done;
}

/**
 * Deletes the users of all requests from older data, where they are still known. Complete requests whose users are no longer known have to
 * be submitted again, unless the older data cannot contain those users. `clients`: connections to the servers with that data.
 */
export async function deleteFromOlderData(
  redis: AdminContext['redis'],
  clients: readonly ClickHouseClient[],
  isDoneInOlderData: (request: DeletionRequest) => boolean,
): Promise<Pick<RestoredBackup, 'deleted_again' | 'submit_again'>> {
  const { deployment, environments } = await readLoadedRegistry(redis);
  const known: DeletedRequest[] = [];
  const unknown: DeletionRequest[] = [];
  for await (const request of eachDeletion(redis)) {
    const hashes = await readDeletedUsers(redis, request.deletion_request_id);
    if (hashes !== undefined) known.push({ request, hashes });
    else if (request.status === 'complete' && !isDoneInOlderData(request)) unknown.push(request);
  }
  let rows = 0;
  for (const clickhouse of clients) {
    const where = { redis, clickhouse, shards: deployment.shards, environments: [...environments.values()] };
    rows += await deleteAgain(where, known);
  }
  return {
    deleted_again: { requests: known.length, rows },
    submit_again: unknown.map(submitAgainOf),
  };
}

function submitAgainOf({
  deletion_request_id,
  account_id,
  app_id,
  submitted_at,
  completed_at,
  targets,
}: DeletionRequest): RestoredBackup['submit_again'][number] {
  return {
    deletion_request_id,
    account_id,
    app_id,
    submitted_at,
    ...(completed_at === undefined ? {} : { completed_at }),
    targets,
  };
}

export async function readCompleteIds(primary: ClickHouseClient): Promise<ReadonlySet<string>> {
  const rows = await readRows<{ request_id: string }>(primary, {
    query: `SELECT request_id FROM deletion_requests GROUP BY request_id
      HAVING JSONExtractString(argMax(deletion_requests.document, deletion_requests.version), 'status') = 'complete'`,
  });
  return new Set(rows.map(({ request_id: id }) => id));
}

/** All requests that were ever submitted, read in small batches. */
async function* eachDeletion(redis: AdminContext['redis']): AsyncGenerator<DeletionRequest> {
  const seen = new Set<string>();
  for await (const entries of hashPieces(redis, registryKeys.deletions, idsPerCall))
    for (const [id, text] of entries) {
      if (seen.has(id)) continue;
      seen.add(id);
      yield JSON.parse(text) as DeletionRequest;
    }
}

const idsPerCall = 1_000;

/**
 * Restarts the pending requests: the restored tables lack their progress, and have rows again that they had deleted. The counts of what
 * they found stay as evidence.
 */
export async function resetDeletions({ redis }: AdminContext): Promise<void> {
  const { deployment } = await readLoadedRegistry(redis);
  for (const { requestId } of await readUnfinishedMembers(redis, deployment.epoch)) {
    const request = await readDeletion(redis, requestId);
    if (request === undefined) continue;
    const {
      left: _,
      hidden_at: __,
      verified_at: ___,
      verified_tables: ____,
      targets_kept: _____,
      ...rest
    } = request;
    try {
      await updateDeletion(redis, rest, { state: 'submitted', resolved: false, mutations: [] });
      await redis.sadd(registryKeys.deletionsAwaitingTargetCopy, requestId);
    } catch (error) {
      // The request is no longer pending: its targets are lost.
      if (!(error instanceof ConcurrentUpdate)) throw error;
    }
  }
}
