// The life of a deployment's state: made at the first start, found at the next ones, and loaded again from
// ClickHouse when Redis was emptied. Until it is loaded, the commit script refuses every commit.

import { randomBytes } from 'node:crypto';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { isInsertRunning, refuseSegments } from '../clickhouse/store.js';
import { storedTable, tables } from '../clickhouse/tables.js';
import { loads } from '../contract/limits.js';
import type { CrashPoint } from '../crash-point.js';
import { claimBucketCount } from '../redis/claim-window.js';
import type { Redis } from '../redis/client.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { AdministrationError, createAccount, createApiKey, listAccounts } from './accounts.js';
import { type Deployment, deploymentKey } from './documents.js';
import { beginLoading, inCalls, LoadInterrupted, type Loading } from './loading.js';
import { type MirroredRegistry, mirrorRegistry, readMirror } from './mirror.js';
import { readRegistry } from './registry.js';

export type LoadOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly shards: number;
  readonly claimBytesMax: number;
  /** Loads what else is kept twice into an emptied Redis, before anybody may use it. */
  readonly restoreMore?: (loading: Loading) => Promise<unknown>;
  /** How long another load is waited for. */
  readonly waitMsMax?: number;
  readonly crash: CrashPoint;
};

/** `created`: a first start. `restored`: from ClickHouse, into an emptied Redis. `found`: Redis has it. */
export type Loaded = { readonly how: 'created' | 'restored' | 'found'; readonly deployment: Deployment };

/**
 * Settles when Redis holds the deployment's state on every shard. May be called again, after a crash too. Throws
 * AdministrationError when another load runs for too long, or when Redis is emptied meanwhile.
 */
export async function loadDeployment(options: LoadOptions): Promise<Loaded> {
  const { redis, clickhouse, waitMsMax = 0 } = options;
  const loading = await beginLoading(redis, waitMsMax);
  if (loading === undefined) return checkShards(options);
  try {
    const loaded = await createOrRestore(options, loading);
    // The epoch is set by now, under which the copies are made.
    await mirrorRegistry(redis, clickhouse);
    return loaded;
  } finally {
    await loading.end();
  }
}

/** Redis is loaded; on a cluster a single shard may have lost its state. The registry is only read. */
async function checkShards(options: LoadOptions): Promise<Loaded> {
  const { redis } = options;
  const { deployment } = await readRegistry(redis);
  if (deployment === undefined) throw new LoadInterrupted();
  const confirm = async () => {
    if ((await redis.get(registryKeys.epoch)) !== deployment.epoch) throw new LoadInterrupted();
  };
  const loaded: Loaded = { how: 'found', deployment };
  await loadShards(options, loaded, { nonce: randomBytes(16).toString('hex'), confirm });
  await confirm();
  return loaded;
}

async function createOrRestore(options: LoadOptions, loading: Loading): Promise<Loaded> {
  const { clickhouse, crash } = options;
  const mirror = await readMirror(clickhouse);
  const mirrored = mirror.documents[deploymentKey];
  if (mirrored === undefined) {
    const loaded: Loaded = { how: 'created', deployment: await createDeployment(options, loading) };
    await loadShards(options, loaded, loading);
    await loading.finish(loaded.deployment, 'created');
    return loaded;
  }
  await restoreDocuments(loading, mirror);
  crash('documents_restored');
  const loaded: Loaded = { how: 'restored', deployment: JSON.parse(mirrored) as Deployment };
  await loadShards(options, loaded, loading);
  crash('shards_restored');
  await options.restoreMore?.(loading);
  crash('deletions_restored');
  // The epoch of the registry comes last: who finds it finds everything.
  await loading.finish(loaded.deployment, 'restored');
  crash('epoch_restored');
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

/** The new deployment's document; that of a first start that was cut off stands. */
async function createDeployment({ shards }: LoadOptions, loading: Loading): Promise<Deployment> {
  const created: Deployment = {
    epoch: randomBytes(16).toString('hex'),
    secret: randomBytes(32).toString('hex'),
    shards,
    created_at: new Date().toISOString(),
  };
  const stands = await loading.write(
    scripts.createDeployment,
    [registryKeys.documents, registryKeys.unmirrored, registryKeys.version],
    [deploymentKey, JSON.stringify(created)],
  );
  return JSON.parse(stands as string) as Deployment;
}

async function restoreDocuments(loading: Loading, mirror: MirroredRegistry): Promise<void> {
  await loading.write(scripts.clearLeftovers, [
    registryKeys.documents,
    registryKeys.unmirrored,
    registryKeys.deletions,
    registryKeys.pendingDeletions,
    registryKeys.lostDeletions,
    registryKeys.unkeptDeletions,
    registryKeys.unmirroredDeletions,
  ]);
  // Readers that knew an older version must see that this is another one.
  const version = (BigInt(mirror.version) + 1n).toString();
  const entries = Object.entries(mirror.documents);
  for await (const call of inCalls(entries, ([, document]) => document.length)) {
    await loading.write(
      scripts.loadDocuments,
      [registryKeys.documents, registryKeys.version],
      [version, ...call.flat()],
    );
  }
}

async function loadShards(options: LoadOptions, loaded: Loaded, right: Right): Promise<void> {
  const { shards } = options;
  if (loaded.deployment.shards !== shards) {
    throw new AdministrationError(
      `SHARDS is ${shards}, but this deployment was first started with ${loaded.deployment.shards}`,
    );
  }
  for (let shard = 0; shard < shards; shard++) await loadShard(options, loaded, right, shard);
}

/** On a cluster a shard's script cannot see who may load; so the shard notes who reserved its numbers. */
type Right = Pick<Loading, 'nonce' | 'confirm'>;

/**
 * Makes one shard ready. What it held before it was emptied may be on its way to ClickHouse still, in a worker that read
 * it and has not sent it yet: from here on it is refused there, so that the next deletion need not wait for it, nor
 * reach above it.
 */
async function loadShard(
  { redis, clickhouse, shards, claimBytesMax }: LoadOptions,
  { how, deployment: { epoch } }: Loaded,
  { nonce, confirm }: Right,
  shard: number,
): Promise<void> {
  const state = shardKeys.state(shard);
  let floor = await highestNumber(clickhouse, shard);
  // The clock of this process too: Redis may be another machine by now, whose clock is behind.
  const known = how === 'created' ? floor : higher(floor, String(Date.now() * 1000));
  await confirm();
  const reserved = await runScript(redis, scripts.reserveNumbers, [state], [epoch, known, nonce]);
  if (reserved !== null && how !== 'created') {
    await refuseSegments(clickhouse, shard, String(reserved));
    await untilNoInsertRuns(clickhouse);
    floor = higher(String(reserved), await highestNumber(clickhouse, shard));
  }
  await confirm();
  const bucketCount = claimBucketCount(claimBytesMax / shards);
  const wasLoaded = await runScript(redis, scripts.loadShard, [state], [epoch, floor, bucketCount, nonce]);
  if (wasLoaded === null) throw new LoadInterrupted();
}

/** Inserts that ClickHouse had begun before are not refused, so they are waited for. */
async function untilNoInsertRuns(clickhouse: ClickHouseClient): Promise<void> {
  const giveUpAt = performance.now() + loads.insertMsMax;
  while (await isInsertRunning(clickhouse)) {
    if (performance.now() > giveUpAt) {
      throw new AdministrationError('an insert still runs in ClickHouse; try again when it has ended');
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

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
