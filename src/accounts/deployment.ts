// The life of a deployment's state: made at the first start, found at the next ones, and loaded again from
// ClickHouse when Redis was emptied. Until it is loaded, the commit script refuses every commit.

import { randomBytes } from 'node:crypto';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { isInsertRunning, refuseSegments } from '../clickhouse/store.js';
import { storedTable, tables } from '../clickhouse/tables.js';
import type { CrashPoint } from '../crash-point.js';
import { claimBucketCount } from '../redis/claim-window.js';
import type { Redis } from '../redis/client.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { AdministrationError, createAccount, createApiKey, listAccounts } from './accounts.js';
import { type Deployment, deploymentKey } from './documents.js';
import { mirrorRegistry, readMirror } from './mirror.js';
import { readRegistry } from './registry.js';

export type LoadOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly shards: number;
  readonly claimBytesMax: number;
  /** Loads what else is kept twice into an emptied Redis, before anybody may use it. */
  readonly restoreMore?: () => Promise<unknown>;
  readonly crash: CrashPoint;
};

/** `created`: a first start. `restored`: from ClickHouse, into an emptied Redis. `found`: Redis has it. */
export type Loaded = { readonly how: 'created' | 'restored' | 'found'; readonly deployment: Deployment };

/** Settles when Redis holds the deployment's state on every shard. May be called again, after a crash too. */
export async function loadDeployment(options: LoadOptions): Promise<Loaded> {
  const { redis, clickhouse, shards, crash } = options;
  const loaded = await findOrRestore(options);
  if (loaded.how === 'restored') crash('documents_restored');
  if (loaded.deployment.shards !== shards) {
    throw new AdministrationError(
      `SHARDS is ${shards}, but this deployment was first started with ${loaded.deployment.shards}`,
    );
  }
  for (let shard = 0; shard < shards; shard++) await loadShard(options, loaded, shard);
  if (loaded.how === 'restored') {
    crash('shards_restored');
    // What was deleted before may still be in the append-only file, and the wish to rewrite it is lost.
    await redis.set(registryKeys.rewriteWanted, '1');
    await options.restoreMore?.();
    crash('deletions_restored');
  }
  // The epoch of the registry comes last: who finds it finds everything.
  await redis.set(registryKeys.epoch, loaded.deployment.epoch);
  if (loaded.how === 'restored') crash('epoch_restored');
  if (loaded.how !== 'found') await mirrorRegistry(redis, clickhouse);
  return loaded;
}

/** The account that a first start creates, with its environments and, this once, its API key. */
export async function createDemoAccount(redis: Redis) {
  const account = await createAccount(redis, demoAccountName, ['Main Production', 'Development']);
  const main = account.environments[0];
  if (main === undefined) throw new Error('an account was created without environments');
  const { api_key } = await createApiKey(redis, main.app_id);
  return { account, apiKey: api_key };
}

export const demoAccountName = 'demo';

/** The demo account, unless an administrator removed it. */
export async function findDemoAccount(redis: Redis) {
  return (await listAccounts(redis)).find(({ name }) => name === demoAccountName);
}

async function findOrRestore({ redis, clickhouse, shards }: LoadOptions): Promise<Loaded> {
  const { deployment } = await readRegistry(redis);
  if (deployment !== undefined) return { how: 'found', deployment };

  const mirror = await readMirror(clickhouse);
  const mirrored = mirror.documents[deploymentKey];
  if (mirrored !== undefined) {
    await redis.hset(registryKeys.documents, mirror.documents);
    // Readers that knew an older version must see that this is another one.
    await redis.set(registryKeys.version, (BigInt(mirror.version) + 1n).toString());
    return { how: 'restored', deployment: JSON.parse(mirrored) as Deployment };
  }

  const created: Deployment = {
    epoch: randomBytes(16).toString('hex'),
    secret: randomBytes(32).toString('hex'),
    shards,
    created_at: new Date().toISOString(),
  };
  // Only the first of several first starts at once creates it; the others find its document.
  await redis.hsetnx(registryKeys.documents, deploymentKey, JSON.stringify(created));
  await redis.sadd(registryKeys.unmirrored, deploymentKey);
  await redis.setnx(registryKeys.version, '1');
  const stands = JSON.parse((await redis.hget(registryKeys.documents, deploymentKey)) ?? '') as Deployment;
  return { how: stands.epoch === created.epoch ? 'created' : 'found', deployment: stands };
}

/**
 * Makes one shard ready. What it held before it was emptied may be on its way to ClickHouse still, in a worker that read
 * it and has not sent it yet: from here on it is refused there, so that the next deletion need not wait for it, nor
 * reach above it.
 */
async function loadShard(
  { redis, clickhouse, shards, claimBytesMax }: LoadOptions,
  { how, deployment: { epoch } }: Loaded,
  shard: number,
): Promise<void> {
  const state = shardKeys.state(shard);
  let floor = await highestNumber(clickhouse, shard);
  if (how !== 'created') {
    // The clock of this process too: Redis may be another machine by now, whose clock is behind.
    const known = higher(floor, String(Date.now() * 1000));
    const reserved = await runScript(redis, scripts.reserveNumbers, [state], [epoch, known]);
    if (reserved !== null) {
      await refuseSegments(clickhouse, shard, String(reserved));
      await untilNoInsertRuns(clickhouse);
      floor = higher(String(reserved), await highestNumber(clickhouse, shard));
    }
  }
  const bucketCount = claimBucketCount(claimBytesMax / shards);
  await runScript(redis, scripts.loadShard, [state], [epoch, floor, bucketCount]);
}

/** Inserts that ClickHouse had begun before are not refused, so they are waited for. */
async function untilNoInsertRuns(clickhouse: ClickHouseClient): Promise<void> {
  const giveUpAt = performance.now() + insertMsMax;
  while (await isInsertRunning(clickhouse)) {
    if (performance.now() > giveUpAt) {
      throw new AdministrationError('an insert still runs in ClickHouse; try again when it has ended');
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Longer than a worker waits for one. */
const insertMsMax = 150_000;

/**
 * The highest number that a shard can have given, as far as ClickHouse knows: of the segments of all shards, and of the
 * fences of deletion requests, below which nothing new may come to lie.
 */
async function highestNumber(clickhouse: ClickHouseClient, shard: number): Promise<string> {
  const sources = [...tables.map(storedTable), 'failed_events'];
  const result = await clickhouse.query({
    query: `${sources.map((table) => `SELECT toString(max(segment)) AS number FROM ${table}`).join(' UNION ALL ')}
      UNION ALL
      SELECT toString(max(toUInt64OrZero(JSONExtractString(deletion_requests.document, 'fences', {shard:String})))) AS number
      FROM deletion_requests`,
    query_params: { shard: String(shard) },
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ number: string }>();
  return rows.map(({ number }) => number).reduce(higher, '0');
}

function higher(a: string, b: string): string {
  return BigInt(a) > BigInt(b) ? a : b;
}
