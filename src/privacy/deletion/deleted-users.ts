// Keyed hashes of the users that completed requests have deleted, so that they can be deleted again from a restored backup, or from a
// ClickHouse that was set back. A request's targets are removed when it is complete, but older data still has the users' rows. So Redis
// keeps a hash of each user of the request, including merged ones, for a month, and longer if a backup with older data is kept longer. The
// hash is SipHash with 128 bits, with a key that only the registry has.

import { createHmac, randomBytes } from 'node:crypto';
import { inBatches, inBatchesAsync } from '../../batches.js';
import { streamRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { createScratch, dropScratch, insertScratch, scratchName } from '../../clickhouse/scratch.js';
import { StateNotLoaded } from '../../contract/errors.js';
import { deletions } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { readBackups } from '../../registry/backups.js';
import { readLoadedRegistry, readTime } from '../../registry/registry.js';
import { deletionRounds } from '../../tuning.js';
import { namePrefix } from './round-tables.js';
import { targetTable } from './user-tables.js';

const hashBytes = 16;
/** This many ids fit the text of a statement (262,144 bytes). */
const idsPerStatementMax = 1_000;

/**
 * Stores the hashes of those users of these requests that are still among the targets in ClickHouse. They are kept for at least a month,
 * since ClickHouse may be set back. May be repeated, even when some of the targets have been removed.
 */
export async function keepDeletedUsers(
  redis: Redis,
  clickhouse: ClickHouseClient,
  requestIds: readonly string[],
): Promise<void> {
  if (requestIds.length === 0) return;
  const backups = await readBackups(redis);
  const keptUntil = Math.max(0, ...backups.map(({ keep_until }) => Date.parse(keep_until)));
  const keepMs = Math.max(deletions.deletedUsersKeptMs, keptUntil - (await readTime(redis)));
  for (const ids of inBatches(requestIds, idsPerStatementMax)) {
    await withHashKey(redis, clickhouse, async (key) => {
      const { writesAtOnceMax, hashBytesPerWrite } = deletionRounds;
      const each = eachRequest(clickhouse, key, ids);
      // Several at once: each write waits for a sync, and all requests of the round would wait for the sum.
      for await (const some of inBatchesAsync(
        each,
        writesAtOnceMax,
        ({ found }) => found.length,
        hashBytesPerWrite,
      ))
        await Promise.all(some.map(({ id, found }) => keep(redis, id, found, keepMs)));
    });
  }
}

type Hashes = { readonly id: string; readonly found: Buffer };

/** Leaves a longer list of an earlier call, since targets may have been removed since then. */
async function keep(redis: Redis, requestId: string, found: Buffer, keepMs: number): Promise<void> {
  const key = registryKeys.deletedUsers(requestId);
  if ((await redis.strlen(key)) >= found.length) {
    await redis.pexpire(key, keepMs, 'GT');
    return;
  }
  // In pieces, since commits wait behind each write; under another name until the list is complete.
  const unfinished = `${key}:${randomBytes(6).toString('hex')}`;
  for (let at = 0; at < found.length; at += deletionRounds.hashBytesPerWrite) {
    const piece = found.subarray(at, at + deletionRounds.hashBytesPerWrite);
    if (at === 0) await redis.set(unfinished, piece, 'PX', keepMs);
    // Redis was emptied in between.
    else if ((await redis.append(unfinished, piece)) !== at + piece.length) throw new StateNotLoaded();
  }
  await redis.rename(unfinished, key);
}

/** Yields the hashes request by request, since one request may have a hundred thousand users. */
async function* eachRequest(
  clickhouse: ClickHouseClient,
  key: string,
  requestIds: readonly string[],
): AsyncGenerator<Hashes> {
  const rows = streamRows<{ request_id: string; hash: string }>(clickhouse, {
    query: `SELECT DISTINCT request_id, hex(${hashOfUser(key)}) AS hash FROM ${targetTable}
      WHERE request_id IN ({requestIds:Array(String)}) ORDER BY request_id`,
    query_params: { requestIds },
  });
  let id: string | undefined;
  let found: Buffer[] = [];
  for await (const { request_id: next, hash } of rows) {
    if (id !== undefined && id !== next) {
      yield { id, found: Buffer.concat(found) };
      found = [];
    }
    id = next;
    const bytes = Buffer.from(hash, 'hex');
    if (bytes.length !== hashBytes) throw new Error('clickhouse lost the key of the hashes');
    found.push(bytes);
  }
  if (id !== undefined) yield { id, found: Buffer.concat(found) };
}

/** The hashes of a request's users, in hexadecimal digits; undefined if none are kept (any more). */
export async function readDeletedUsers(redis: Redis, requestId: string): Promise<string[] | undefined> {
  const bytes = await redis.getBuffer(registryKeys.deletedUsers(requestId));
  if (bytes === null) return undefined;
  const hashes: string[] = [];
  for (let at = 0; at < bytes.length; at += hashBytes) hashes.push(bytes.toString('hex', at, at + hashBytes));
  return hashes;
}

/**
 * The hash of a user, as an expression of the columns app_id (empty for the whole account), identity and user_id. `key`: the expression
 * that `withHashKey` provides.
 */
export function hashOfUser(key: string): string {
  const user = "if(user_id IS NULL, concat(' i', identity), concat(' u', toString(assumeNotNull(user_id))))";
  return `sipHash128Keyed(${key}, concat(app_id, ${user}))`;
}

/** Puts the key of the hashes into a table while `work` runs: in the text of a statement it would be logged. */
export async function withHashKey<Result>(
  redis: Redis,
  clickhouse: ClickHouseClient,
  work: (key: string) => Promise<Result>,
): Promise<Result> {
  const { deployment } = await readLoadedRegistry(redis);
  const key = createHmac('sha256', deployment.secret).update('deleted users').digest();
  const table = scratchName(clickhouse, `${namePrefix}${randomBytes(6).toString('hex')}_hash_key`);
  await createScratch(clickhouse, table, 'first UInt64, second UInt64');
  try {
    const [first, second] = [String(key.readBigUInt64LE(0)), String(key.readBigUInt64LE(8))];
    await insertScratch(clickhouse, table, [{ first, second }]);
    return await work(`(SELECT (first, second) FROM ${table})`);
  } finally {
    await dropScratch(clickhouse, [table]);
  }
}
