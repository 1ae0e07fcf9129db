// The first step of a round of deletions: finds the users of its requests on every server.

import { randomBytes } from 'node:crypto';
import { keepDeletedUsers } from '../../src/privacy/deletion/deleted-users.js';
import { type DeletionRequest, updateDeletion } from '../../src/privacy/deletion/request.js';
import { fillKeysWithout, findReachedUsers, keepResolved } from '../../src/privacy/deletion/resolve-users.js';
import {
  createParts,
  distributeUsers,
  gatherUsers,
  type RoundParts,
} from '../../src/privacy/deletion/round-parts.js';
import { countNamed } from '../../src/privacy/deletion/round-tables.js';
import { endRuns } from '../../src/privacy/retention/expired-rows.js';
import { registryKeys } from '../../src/redis/keys.js';
import type { Environment } from '../../src/registry/documents.js';
import { environmentsOf, type Resolved, type RoundOptions } from './round.js';

/**
 * Creates the tables of the round and finds the users of its requests. Leaves out requests whose targets ClickHouse lacks, and requests
 * that have to wait for others of the same user. `environments`: those of their accounts and perhaps of others.
 */
export async function resolve(
  options: RoundOptions,
  unverified: readonly DeletionRequest[],
  environments: readonly Environment[],
): Promise<Resolved> {
  const { redis, clickhouse, shards } = options;
  const accounts = unverified.map(({ account_id }) => account_id);
  const parts = await createParts(
    clickhouse,
    randomBytes(6).toString('hex'),
    shards,
    unverified,
    environmentsOf(unverified, environments),
  );
  // A retention run that this round took over from must not remove identifications from now on: they merge users.
  for (const part of parts.all) await endRuns(part.client);
  await distributeUsers(parts);
  const named = await countNamed(clickhouse, parts.primary.tables);
  const leftOut = new Set<number>();
  const heldUp = new Set<string>();
  for (const [number, request] of unverified.entries()) {
    const hasTargets = (named.get(number) ?? 0) >= request.targets;
    if (hasTargets && !heldUp.has(request.account_id)) continue;
    leftOut.add(number);
    // The users that this request deletes determine which users later requests of the account reach.
    heldUp.add(request.account_id);
    if (hasTargets) continue;
    // ClickHouse lost the targets when a backup was restored. The next round copies them from Redis and resolves their users
    // again. If Redis has none either, the request is lost.
    await updateDeletion(redis, request, { resolved: false, state: 'finding_users' });
    await redis.sadd(registryKeys.deletionsAwaitingTargetCopy, request.deletion_request_id);
  }
  const unresolved = [...unverified.keys()].filter(
    (number) => !unverified[number]?.resolved && !leftOut.has(number),
  );
  const waiting = await resolveUsers(parts, unresolved, accounts, leftOut);
  options.crash('resolved');
  const requests = new Map(
    [...unverified.entries()].filter(([number]) => !leftOut.has(number) && !waiting.has(number)),
  );
  const resolved = { parts, requests };
  // Kept this early because a backup that is restored before the request is complete may lack the identifications that merged
  // these users.
  await keepDeletedUsers(
    redis,
    clickhouse,
    [...requests.values()].map((request) => request.deletion_request_id),
  );
  return resolved;
}

/**
 * Finds the users of the unresolved requests on every server, and stores them. A request that waits on one server waits on all.
 * Later requests of its account wait too, because they must not delete rows that it still needs. Settles with the requests that
 * wait for the next round.
 */
async function resolveUsers(
  parts: RoundParts,
  unresolved: readonly number[],
  accounts: readonly string[],
  leftOut: ReadonlySet<number>,
): Promise<ReadonlySet<number>> {
  const waiting = new Set<number>();
  for (const { client, tables } of parts.all) {
    for (const request of await findReachedUsers(client, tables, unresolved, accounts, leftOut))
      waiting.add(request);
  }
  if (parts.all.length > 1) {
    for (const earlier of [...waiting])
      for (const request of unresolved)
        if (request > earlier && accounts[request] === accounts[earlier]) waiting.add(request);
  }
  const done = unresolved.filter((request) => !waiting.has(request));
  await gatherUsers(parts, done);
  const { primary } = parts;
  if (done.length > 0) await keepResolved(primary.client, primary.tables, done);
  for (const { client, tables } of parts.all) await fillKeysWithout(client, tables, [...waiting, ...leftOut]);
  return waiting;
}
