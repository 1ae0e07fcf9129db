// The users that completed requests have deleted, as keyed hashes, so that they can be deleted again from a restored backup. A request's
// targets are forgotten when it is complete. A backup that began before that still has their rows. So as long as such a
// backup is kept, Redis keeps a hash of each user that the request reached, merged ones included: SipHash with 128 bits,
// under a key that only the registry has. Without a backup nothing is kept.

import { createHmac, randomBytes } from 'node:crypto';
import { readBackups } from '../accounts/backups.js';
import { readRegistry, readTime, StateNotLoaded } from '../accounts/registry.js';
import { readRows } from '../clickhouse/answers.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { createScratch, dropScratch, insertScratch, scratchName } from '../clickhouse/scratch.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { targetTable } from './places.js';
import { namePrefix } from './round-tables.js';

const hashBytes = 16;
/** This many ids fit the text of a statement (262,144 bytes). */
const idsPerStatementMax = 1_000;

/**
 * Keeps the hashes of the users that these requests reach, as far as ClickHouse has them among the targets. May be repeated, also
 * when some of the targets are gone already. Does nothing without a backup.
 */
export async function keepDeletedUsers(
  redis: Redis,
  clickhouse: ClickHouseClient,
  requestIds: readonly string[],
): Promise<void> {
  const backups = await readBackups(redis);
  if (backups.length === 0 || requestIds.length === 0) return;
  const keptUntil = Math.max(...backups.map(({ keep_until }) => Date.parse(keep_until)));
  const keepMs = keptUntil - (await readTime(redis));
  for (let first = 0; first < requestIds.length; first += idsPerStatementMax) {
    const hashes = await readHashes(redis, clickhouse, requestIds.slice(first, first + idsPerStatementMax));
    await Promise.all([...hashes].map(([id, found]) => keep(redis, id, found, keepMs)));
  }
}

/** Hashes of an earlier call stay if there are more of them: since then targets may have been removed. */
async function keep(
  redis: Redis,
  requestId: string,
  found: readonly Buffer[],
  keepMs: number,
): Promise<void> {
  const key = registryKeys.deletedUsers(requestId);
  const bytes = Buffer.concat(found);
  if ((await redis.strlen(key)) < bytes.length) await redis.set(key, bytes, 'PX', keepMs);
  else await redis.pexpire(key, keepMs, 'GT');
}

async function readHashes(
  redis: Redis,
  clickhouse: ClickHouseClient,
  requestIds: readonly string[],
): Promise<ReadonlyMap<string, Buffer[]>> {
  const hashes = new Map<string, Buffer[]>();
  await withHashKey(redis, clickhouse, async (key) => {
    const rows = await readRows<{ request_id: string; hash: string }>(clickhouse, {
      query: `SELECT DISTINCT request_id, hex(${hashOfUser(key)}) AS hash FROM ${targetTable}
        WHERE request_id IN ({requestIds:Array(String)})`,
      query_params: { requestIds },
    });
    for (const { request_id: id, hash } of rows) {
      const bytes = Buffer.from(hash, 'hex');
      if (bytes.length !== hashBytes) throw new Error('clickhouse lost the key of the hashes');
      hashes.set(id, [...(hashes.get(id) ?? []), bytes]);
    }
  });
  return hashes;
}

/** The hashes of the users that a request reached, in hexadecimal digits; undefined if they are not kept, or no longer. */
export async function readDeletedUsers(redis: Redis, requestId: string): Promise<string[] | undefined> {
  const bytes = await redis.getBuffer(registryKeys.deletedUsers(requestId));
  if (bytes === null) return undefined;
  const hashes: string[] = [];
  for (let at = 0; at < bytes.length; at += hashBytes) hashes.push(bytes.toString('hex', at, at + hashBytes));
  return hashes;
}

/**
 * The hash of a user, as an expression over the columns app_id (empty for all of an account), identity and user_id.
 * `key` is the expression that `withHashKey` gives.
 */
export function hashOfUser(key: string): string {
  const user = "if(user_id IS NULL, concat(' i', identity), concat(' u', toString(assumeNotNull(user_id))))";
  return `sipHash128Keyed(${key}, concat(app_id, ${user}))`;
}

/** Puts the key of the hashes into a table of its own while `work` runs, since texts of statements are logged. */
export async function withHashKey<Result>(
  redis: Redis,
  clickhouse: ClickHouseClient,
  work: (key: string) => Promise<Result>,
): Promise<Result> {
  const { deployment } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
  const key = createHmac('sha256', deployment.secret).update('deleted users').digest();
  const table = scratchName(clickhouse, `${namePrefix}${randomBytes(6).toString('hex')}_hash_key`);
  await createScratch(clickhouse, table, 'first UInt64, second UInt64');
  try {
    const [first, second] = [String(key.readBigUInt64LE(0)), String(key.readBigUInt64LE(8))];
    await insertScratch(clickhouse, table, [{ first, second }]);
    return await work(`(SELECT (first, second) FROM ${table})`);
  } finally {
    await dropScratch(clickhouse, table);
  }
}
