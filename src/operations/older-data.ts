// What ClickHouse needs after its tables were put back to an older state, by a restore or a loss: complete deletions are carried out again,
// pending ones start again, and everything of which it keeps a second copy is copied again.

import { inBatches } from '../batches.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { AdministrationError } from '../contract/errors.js';
import { backups } from '../contract/limits.js';
import { type DeletedRequest, deleteAgain } from '../privacy/deletion/delete-again.js';
import { readDeletedUsers } from '../privacy/deletion/deleted-users.js';
import { withMaintenanceLock } from '../privacy/deletion/maintenance-lock.js';
import { keepReferences } from '../privacy/deletion/references.js';
import {
  type DeletionRequest,
  readUnfinishedMembers,
  updateUnfinished,
} from '../privacy/deletion/request.js';
import { copySuppressions } from '../privacy/suppression/second-copy.js';
import { hashPieces } from '../redis/hash-pieces.js';
import { registryKeys } from '../redis/keys.js';
import type { Lease } from '../redis/lease.js';
import { copyChanges, kindsOfCopies, listUncopied } from '../registry/outbox.js';
import { readLoadedRegistry } from '../registry/registry.js';
import { readSecondCopy } from '../registry/second-copy.js';
import { stateLoads } from '../tuning.js';
import type { AdminContext } from './context.js';

export type DeletedAgain = {
  /** Requests that were carried out again, and the rows that they deleted. */
  readonly deleted_again: { readonly requests: number; readonly rows: number };
  /** Complete requests whose users are no longer known, so that their callers have to submit them again. */
  readonly submit_again: readonly Pick<
    DeletionRequest,
    'deletion_request_id' | 'account_id' | 'app_id' | 'submitted_at' | 'completed_at' | 'targets'
  >[];
};

/** For data that lacks no deletion. */
export const noneDeleted: DeletedAgain = { deleted_again: { requests: 0, rows: 0 }, submit_again: [] };

/** Runs `work` while no deletion round is running or can start. */
export async function withoutDeletions<Result>(
  { redis }: AdminContext,
  work: (lock: Lease) => Promise<Result>,
): Promise<Result> {
  const done = await withMaintenanceLock(redis, 'restore', work, backups.roundWaitMsMax);
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
): Promise<DeletedAgain> {
  const { deployment, environments } = await readLoadedRegistry(redis);
  // By id, since a request may be read twice.
  const known = new Map<string, DeletedRequest>();
  const unknown = new Map<string, DeletedAgain['submit_again'][number]>();
  for await (const requests of deletionsInPieces(redis))
    for (const request of requests) {
      const { deletion_request_id, account_id, app_id, submitted_at, completed_at, targets } = request;
      const hashes = await readDeletedUsers(redis, deletion_request_id);
      if (hashes !== undefined) known.set(deletion_request_id, { request, hashes });
      else if (request.status === 'complete' && !isDoneInOlderData(request))
        unknown.set(deletion_request_id, {
          deletion_request_id,
          account_id,
          app_id,
          submitted_at,
          completed_at,
          targets,
        });
    }
  let rows = 0;
  for (const clickhouse of clients) {
    const where = { redis, clickhouse, shards: deployment.shards, environments: [...environments.values()] };
    rows += await deleteAgain(where, [...known.values()]);
  }
  return { deleted_again: { requests: known.size, rows }, submit_again: [...unknown.values()] };
}

/** All requests that were ever submitted, some perhaps twice. */
async function* deletionsInPieces(redis: AdminContext['redis']): AsyncGenerator<DeletionRequest[]> {
  for await (const entries of hashPieces(redis, registryKeys.deletions, stateLoads.documentsPerCallMax))
    if (entries.length > 0) yield entries.map(([, text]) => JSON.parse(text) as DeletionRequest);
}

/**
 * Restarts the pending requests: the older tables lack their progress, and have rows again that they had deleted. The counts of what they
 * found stay as evidence.
 */
export async function resetDeletions({ redis }: AdminContext): Promise<void> {
  const { deployment } = await readLoadedRegistry(redis);
  for (const { requestId } of await readUnfinishedMembers(redis, deployment.epoch)) {
    const isRestarted = await updateUnfinished(redis, requestId, {
      state: 'submitted',
      resolved: false,
      mutations: [],
      left: undefined,
      hidden_at: undefined,
      verified_at: undefined,
      verified_tables: undefined,
      targets_kept: undefined,
    });
    if (isRestarted) await redis.sadd(registryKeys.deletionsAwaitingTargetCopy, requestId);
  }
}

/**
 * Copies suppressions, documents, requests and their references to ClickHouse: its copies are old, or were lost with the server if the
 * backup is restored into a new one. Removes documents that only the older data has.
 */
export async function renewSecondCopies(context: AdminContext): Promise<void> {
  const { redis, clickhouse } = context;
  await copySuppressions(redis, clickhouse);
  const ofBackup = Object.keys((await readSecondCopy(clickhouse)).documents);
  const documents = [...new Set([...ofBackup, ...(await redis.hkeys(registryKeys.documents))])];
  for (const some of inBatches(documents, stateLoads.documentsPerCallMax)) {
    await listUncopied(redis, kindsOfCopies.document, some);
    await copyChanges(redis, clickhouse, { kind: kindsOfCopies.document });
  }
  for await (const requests of deletionsInPieces(redis)) {
    const ids = requests.map((request) => request.deletion_request_id);
    await listUncopied(redis, kindsOfCopies.deletion, ids);
    await copyChanges(redis, clickhouse, { kind: kindsOfCopies.deletion });
    await keepReferences(redis, clickhouse, requests);
  }
}
