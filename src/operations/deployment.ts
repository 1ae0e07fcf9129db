// The life of a deployment's state: created at the first start, found at later starts, and loaded from ClickHouse after Redis was emptied.
// Until it is loaded, the commit script refuses every commit.

import { randomBytes } from 'node:crypto';
import { createAccount, listAccounts } from '../accounts/accounts.js';
import { createApiKey } from '../accounts/api-keys.js';
import { readRows } from '../clickhouse/answers.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { syncReplicas } from '../clickhouse/replication.js';
import { serversOf } from '../clickhouse/servers.js';
import { refuseSegments } from '../clickhouse/shard-limits.js';
import { isInsertRunning } from '../clickhouse/store.js';
import { numberedTables } from '../clickhouse/tables.js';
import { AdministrationError } from '../contract/errors.js';
import type { CrashPoint } from '../crash-point.js';
import { restoreSuppressions } from '../privacy/suppression/second-copy.js';
import { claimBucketCount } from '../redis/claim-window.js';
import { mastersOf, type Redis } from '../redis/client.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import {
  type Deployment,
  type DocumentKey,
  deploymentKey,
  type ShardServers,
  shardServersKey,
} from '../registry/documents.js';
import {
  inScriptCalls,
  LoadInterrupted,
  type Loading,
  versionAfterLoss,
  withLoading,
} from '../registry/loading.js';
import { copyChanges, kindsOfCopies } from '../registry/outbox.js';
import { readRegistry } from '../registry/registry.js';
import { type CopiedRegistry, readSecondCopy } from '../registry/second-copy.js';
import { settleShardServers, spreadEvenly, useShardServers } from '../registry/shard-servers.js';
import { readSeen, seenNothing } from '../registry/witness-copies.js';
import { untilNoInsertRuns } from './running-inserts.js';

export type LoadOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  /** How many shards a new deployment gets. */
  readonly shards: number;
  /** Whether SHARDS was set; a deployment with another number of shards is then refused. */
  readonly areShardsGiven?: boolean;
  readonly claimBytesMax: number;
  /** Loads more data from its second copies into an emptied Redis, before that Redis may be used. */
  readonly restoreMore?: (loading: Loading) => Promise<unknown>;
  /** Rejects if nothing may be loaded now. Called once this process has the right to load. */
  readonly checkLoad?: () => Promise<void>;
  /** Rejects if no deployment may be created now, even though ClickHouse has none. */
  readonly checkCreation?: () => Promise<void>;
  /** How long to wait for another process's load. */
  readonly waitMsMax?: number;
  readonly crash: CrashPoint;
};

/** `created`: a first start. `restored`: Redis was empty and was loaded from ClickHouse. `found`: Redis already had it. */
export type Loaded = { readonly how: 'created' | 'restored' | 'found'; readonly deployment: Deployment };

/**
 * Settles when Redis holds the deployment's state on every shard. May be called again, even after a crash. Throws AdministrationError when
 * another load takes too long, or when Redis is emptied during the call.
 */
export async function loadDeployment(options: LoadOptions): Promise<Loaded> {
  const { redis, clickhouse, waitMsMax = 0 } = options;
  const loaded = await withLoading(redis, waitMsMax, async (loading) => {
    const made = await createOrRestore(options, loading);
    // After the load, since copying needs the epoch.
    await settleShardServers(redis, clickhouse, made.deployment.shards);
    await copyChanges(redis, clickhouse, { kind: kindsOfCopies.document });
    return made;
  });
  return loaded === 'loaded' ? loadLostShards(options) : loaded;
}

/** For a Redis that is loaded: in a cluster, single shards may have lost their state. It reads the registry and changes nothing in it. */
async function loadLostShards(options: LoadOptions): Promise<Loaded> {
  const { redis } = options;
  const { deployment, version: registry } = await readRegistry(redis);
  if (deployment === undefined) throw new LoadInterrupted();
  const confirm = async () => {
    if ((await redis.get(registryKeys.epoch)) !== deployment.epoch) throw new LoadInterrupted();
  };
  const loaded: Loaded = { how: 'found', deployment };
  await settleShardServers(redis, options.clickhouse, deployment.shards);
  const suppressions = (await redis.hget(registryKeys.suppressions, 'version')) ?? '0';
  const right = { nonce: randomBytes(16).toString('hex'), confirm };
  const witness = (await redis.hget(registryKeys.witness, 'number')) ?? '0';
  await loadShards(options, loaded, right, { suppressions, registry, witness });
  await confirm();
  return loaded;
}

/**
 * Tables with the data that survives a loss of Redis. Replicas are synced before these are read, since one that lags would return only a
 * part.
 */
const secondCopies = [
  'registry',
  'deletion_requests',
  'deletion_targets',
  'deletion_references',
  'suppressed_names',
];

async function createOrRestore(options: LoadOptions, loading: Loading): Promise<Loaded> {
  const { clickhouse, crash } = options;
  await options.checkLoad?.();
  await syncReplicas(clickhouse, secondCopies);
  const copy = await readSecondCopy(clickhouse);
  const copied = copy.documents[deploymentKey];
  if (copied === undefined) {
    await options.checkCreation?.();
    await checkEmpty(clickhouse);
    const witness = await loadWitness(clickhouse, loading);
    const loaded: Loaded = { how: 'created', deployment: await createDeployment(options, loading) };
    await loadShards(options, loaded, loading, { suppressions: '0', registry: '0', witness });
    await beginLedger(options.redis, loaded.deployment.shards);
    await loading.finish(loaded.deployment, 'created');
    return loaded;
  }
  await clearLeftovers(options.redis, loading);
  const witness = await loadWitness(clickhouse, loading);
  const registry = await restoreDocuments(loading, copy);
  crash('documents_restored');
  // Before the shards, since they accept commits as soon as they are loaded.
  const suppressions = await restoreSuppressions(clickhouse, loading);
  crash('suppressions_restored');
  const loaded: Loaded = { how: 'restored', deployment: JSON.parse(copied) as Deployment };
  // To load the shards, this process must know where their rows are.
  const places = copy.documents[shardServersKey];
  if (places !== undefined)
    useShardServers(serversOf(clickhouse), JSON.parse(places) as ShardServers, loaded.deployment.shards);
  await loadShards(options, loaded, loading, { suppressions, registry, witness });
  crash('shards_restored');
  await options.restoreMore?.(loading);
  crash('deletions_restored');
  // The registry's epoch comes last: a process that finds it finds everything else too.
  await loading.finish(loaded.deployment, 'restored');
  crash('epoch_restored');
  return loaded;
}

/** Rows in these tables prove that there was a deployment. */
const tablesOfDeployments = [...secondCopies, ...numberedTables, 'stored_keys'];

/** Rejects if there was a deployment before: a new one would have another epoch and secret, and could not use the old rows. */
async function checkEmpty(clickhouse: ClickHouseClient): Promise<void> {
  for (const [number, client] of serversOf(clickhouse).all.entries()) {
    const counts = tablesOfDeployments.map(
      (table) => `SELECT '${table}' AS name, count() AS rows FROM ${table}`,
    );
    const rows = await readRows<{ name: string }>(client, {
      query: `SELECT name FROM (${counts.join(' UNION ALL ')}) WHERE rows > 0 ORDER BY name`,
    });
    if (rows.length === 0) continue;
    throw new AdministrationError(
      `ClickHouse server ${number} has no deployment's document, but rows in ${rows.map(({ name }) => name).join(', ')}: no new deployment is created over the data of another one. Restore a backup, or set CLICKHOUSE_DATABASE to a new database`,
    );
  }
}

/** Creates the account of a first start, with its environments and its API key, which is shown only this once. */
export async function createDemoAccount(redis: Redis) {
  const account = await createAccount(redis, demoAccountName, ['Main Production', 'Development']);
  const main = account.environments[0];
  if (main === undefined) throw new Error('an account was created without environments');
  const { api_key } = await createApiKey(redis, main.app_id);
  return { account, apiKey: api_key };
}

const demoAccountName = 'demo';

/** The demo account, unless an administrator removed it. */
export async function findDemoAccount(redis: Redis) {
  return (await listAccounts(redis)).find(({ name }) => name === demoAccountName);
}

/** Creates the new deployment's document, unless an interrupted first start has left one. Settles with the one that stands. */
async function createDeployment({ shards, clickhouse }: LoadOptions, loading: Loading): Promise<Deployment> {
  const created: Deployment = {
    epoch: randomBytes(16).toString('hex'),
    secret: randomBytes(32).toString('hex'),
    shards,
    created_at: new Date().toISOString(),
  };
  const create = (key: DocumentKey, document: object) =>
    loading.write([
      ['HSETNX', registryKeys.documents, key, JSON.stringify(document)],
      ['ZADD', registryKeys.uncopied, kindsOfCopies.document, key],
      ['SETNX', registryKeys.version, '1'],
      ['HGET', registryKeys.documents, key],
    ]);
  const servers = serversOf(clickhouse);
  const spread = servers.isOne ? undefined : spreadEvenly(shards, servers.all.length);
  const deployment = JSON.parse((await create(deploymentKey, created)) as string) as Deployment;
  if (spread !== undefined) await create(shardServersKey, spread);
  return deployment;
}

/** Keys of running processes. All other keys of the registry are left over from earlier. */
const keptKeys = [
  registryKeys.loading,
  registryKeys.processes,
  registryKeys.restoreLock,
  registryKeys.restoringBackup,
  registryKeys.maintenanceLock,
  registryKeys.backupLock,
  registryKeys.metrics(''),
];

/**
 * Removes what an interrupted load, or a Redis that was set back, has left, so that Redis will have only what is loaded from ClickHouse.
 * Nothing is lost: without an epoch, nothing has been accepted since.
 */
async function clearLeftovers(redis: Redis, loading: Loading): Promise<void> {
  for (const master of mastersOf(redis)) {
    let cursor = '0';
    do {
      const [next, keys] = await master.scan(cursor, 'MATCH', '{registry}:*', 'COUNT', keysPerScan);
      cursor = next;
      const left = keys.filter(
        (key) => !keptKeys.some((kept) => key === kept || (kept.endsWith(':') && key.startsWith(kept))),
      );
      if (left.length > 0) await loading.write(left.map((key) => ['UNLINK', key]));
    } while (cursor !== '0');
  }
}

const keysPerScan = 1_000;

/** Sets the witness above any number that processes and ClickHouse may have seen before the loss. Settles with it. */
async function loadWitness(clickhouse: ClickHouseClient, loading: Loading): Promise<string> {
  let highest = 0;
  for (const client of serversOf(clickhouse).all)
    for (const { number } of (await readSeen(client)).values()) highest = Math.max(highest, number);
  const number = versionAfterLoss(loading, String(highest));
  await loading.write([['HSET', registryKeys.witness, 'number', number]]);
  return number;
}

/** Loads the registry's documents. Settles with the version that it gave them. */
async function restoreDocuments(loading: Loading, copy: CopiedRegistry): Promise<string> {
  // Never a version that the lost registry had: a process may still hold documents under it.
  const version = versionAfterLoss(loading, copy.version);
  const entries = Object.entries(copy.documents);
  for await (const call of inScriptCalls(entries, ([, document]) => document.length)) {
    await loading.write([
      ['HSET', registryKeys.documents, ...call.flat()],
      ['SET', registryKeys.version, version],
    ]);
  }
  return version;
}

/** Records in each shard that the ledger is complete from now on: nothing was accepted before. */
async function beginLedger(redis: LoadOptions['redis'], shards: number): Promise<void> {
  for (let shard = 0; shard < shards; shard++)
    await redis.hset(shardKeys.state(shard), 'ledger_since', Date.now());
}

/** The versions below which a shard refuses commits. */
type Versions = { readonly suppressions: string; readonly registry: string; readonly witness: string };

async function loadShards(
  options: LoadOptions,
  loaded: Loaded,
  right: Right,
  versions: Versions,
): Promise<void> {
  const { shards } = loaded.deployment;
  if (options.areShardsGiven !== false && shards !== options.shards) {
    throw new AdministrationError(
      `SHARDS is ${options.shards}, but this deployment was first started with ${shards}`,
    );
  }
  for (let shard = 0; shard < shards; shard++) await loadShard(options, loaded, right, shard, versions);
}

/** The right to load. In a cluster a shard's script cannot check who has it, so the shard records who reserved its numbers. */
type Right = Pick<Loading, 'nonce' | 'confirm'>;

/**
 * Loads one shard. Before the shard was emptied, a worker may have read segments that it has not inserted yet. ClickHouse is made to refuse
 * those segments, so that the next deletion need neither wait for them nor cover them.
 */
async function loadShard(
  { redis, clickhouse, claimBytesMax }: LoadOptions,
  { how, deployment: { epoch, shards } }: Loaded,
  { nonce, confirm }: Right,
  shard: number,
  versions: Versions,
): Promise<void> {
  const state = shardKeys.state(shard);
  let floor = await highestNumber(clickhouse, shard);
  // Includes this process's clock, since Redis may have moved to a machine whose clock is behind.
  const known = how === 'created' ? floor : higher(floor, String(Date.now() * 1000));
  await confirm();
  const reserved = await runScript(redis, scripts.reserveNumbers, [state], [epoch, known, nonce]);
  let seen = seenNothing;
  if (reserved !== null && how !== 'created') {
    // Asks all servers, since the shard may have been moving from one to another.
    for (const client of serversOf(clickhouse).all) {
      const latest = (await readSeen(client)).get(String(shard));
      if (latest !== undefined && latest.number >= seen.number) seen = latest;
      await refuseSegments(client, shard, String(reserved));
      await untilNoInsertRuns(() => isInsertRunning(client));
      await syncReplicas(client, numberedTables);
    }
    floor = higher(String(reserved), await highestNumber(clickhouse, shard));
  }
  await confirm();
  const bucketCount = claimBucketCount(claimBytesMax / shards);
  const { suppressions, registry, witness } = versions;
  const { storedTo, storedRecords } = seen;
  const args = [epoch, floor, bucketCount, nonce, suppressions, registry, witness, storedTo, storedRecords];
  const wasLoaded = await runScript(redis, scripts.loadShard, [state], args);
  if (wasLoaded === null) throw new LoadInterrupted();
}

/**
 * The highest number that a shard can have used, as far as ClickHouse knows: the highest of all segments, of whichever shard, and of this
 * shard's fences in deletion requests. No new number may be at or below a fence.
 */
async function highestNumber(clickhouse: ClickHouseClient, shard: number): Promise<string> {
  const numbers = await Promise.all(
    serversOf(clickhouse).all.map((client) => highestNumberOn(client, shard)),
  );
  return numbers.reduce(higher, '0');
}

async function highestNumberOn(clickhouse: ClickHouseClient, shard: number): Promise<string> {
  const rows = await readRows<{ number: string }>(clickhouse, {
    query: `${numberedTables.map((table) => `SELECT toString(max(segment)) AS number FROM ${table}`).join(' UNION ALL ')}
      UNION ALL
      SELECT toString(max(toUInt64OrZero(JSONExtractString(deletion_requests.document, 'fences', {shard:String})))) AS number
      FROM deletion_requests`,
    query_params: { shard: String(shard) },
  });
  return rows.map(({ number }) => number).reduce(higher, '0');
}

function higher(a: string, b: string): string {
  return BigInt(a) > BigInt(b) ? a : b;
}
