// Recovery of ClickHouse servers that were set back to older data: what they lack, and how the service continues without it. Until the
// recovery nothing is stored and no deletion completes (registry/witness.ts). Redis keeps what it has: accounts, keys, requests and waiting
// records. Records that the servers lost are gone; their senders may send them again.

import { readRow, readRows } from '../clickhouse/answers.js';
import { readShards } from '../clickhouse/backups.js';
import { type ClickHouseClient, serversIn } from '../clickhouse/client.js';
import { generationAbove, raiseGeneration, readMarkers } from '../clickhouse/key-index.js';
import { voidSince } from '../clickhouse/ledger-table.js';
import { migrateServers } from '../clickhouse/migrate.js';
import { serversOf } from '../clickhouse/servers.js';
import { shardNumberSpacing } from '../clickhouse/store.js';
import { storedTable } from '../clickhouse/tables.js';
import { AdministrationError, StateNotLoaded } from '../contract/errors.js';
import { backups } from '../contract/limits.js';
import { tables } from '../contract/records.js';
import { createCrashPoint } from '../crash-point.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { withProcessLock } from '../redis/lease.js';
import { runScript, scripts } from '../redis/scripts.js';
import type { Deployment } from '../registry/documents.js';
import { readLoadedRegistry, readRegistry } from '../registry/registry.js';
import { type Comparison, compareOnce } from '../registry/witness.js';
import { forgetKept, gaplessOf, readCopiedAt, readSeen, seenNothing } from '../registry/witness-copies.js';
import { checkAllReachable, checkNoMove } from './backups.js';
import type { AdminContext } from './context.js';
import {
  deleteFromOlderData,
  noneDeleted,
  renewSecondCopies,
  resetDeletions,
  withoutDeletions,
} from './older-data.js';

/** What a shard lacks. */
type Missing = {
  readonly shard: number;
  readonly server: number;
  /**
   * How many records the shard lacks, give or take what was stored within seconds of the copy. Null if unknown: Redis counts fewer records
   * than the server had, or the shard was moved to the server after the time of its data.
   */
  readonly records: number | null;
  /** The missing records were accepted after `after`, up to `until`. Null: from the beginning. */
  readonly after: string | null;
  readonly until: string | null;
};

/** Compares Redis and ClickHouse, and reports what ClickHouse lacks. */
export async function showState(context: AdminContext) {
  const { redis, clickhouse } = context;
  const { setBack } = await compare(context);
  const { deployment } = await readRegistry(redis);
  return {
    redis: deployment === undefined ? ('not_loaded' as const) : ('current' as const),
    clickhouse: serversOf(clickhouse).all.map((_, server) => ({
      server,
      state: setBack.includes(server) ? ('set_back' as const) : ('current' as const),
    })),
    missing: deployment === undefined ? [] : await readMissing(context, deployment.shards, setBack),
  };
}

/**
 * Lets the service continue with servers that were set back: deletes users again that requests have deleted since then, copies accounts,
 * requests and suppressions to the servers again, and frees the keys of the lost records. May be called again, even after a crash.
 */
export async function recoverState(context: AdminContext) {
  const { redis, clickhouse, config } = context;
  const done = await withProcessLock(redis, registryKeys.restoreLock, async () => {
    await checkAllReachable(clickhouse);
    const { setBack } = await compare(context);
    const { deployment, shardServers } = await readLoadedRegistry(redis);
    checkNoMove(shardServers?.moves);
    const missing = await readMissing(context, deployment.shards, setBack);
    if (setBack.length === 0) return { recovered: [], missing, ...noneDeleted };
    // The database itself may be missing.
    await migrateServers(serversIn(config));
    await checkNoMovedShards(context, setBack);
    const crash = createCrashPoint(config.crashAt);
    const result = await withoutDeletions(context, async () => {
      const deleted = await deleteOn(context, setBack);
      crash('users_deleted_again');
      await resetDeletions(context);
      await renewSecondCopies(context);
      crash('copies_rewritten');
      await freeKeys(context, setBack, deployment);
      await voidLost(clickhouse, missing);
      // The older data has rows again that have expired since, so a retention run is due.
      await redis.del(registryKeys.retentionRun);
      await forgetKept(redis, setBack);
      return deleted;
    });
    return { recovered: setBack, missing, ...result };
  });
  if (done === 'locked')
    throw new AdministrationError(
      'a backup is being restored, or another recovery is running: try again later',
    );
  return done;
}

async function compare({ redis, clickhouse, log }: AdminContext): Promise<Comparison> {
  const { deployment } = await readRegistry(redis);
  if (deployment === undefined) return { setBack: [] };
  return compareOnce({ redis, clickhouse, deployment: () => deployment, log });
}

async function readMissing(
  { redis, clickhouse }: AdminContext,
  shards: number,
  setBack: readonly number[],
): Promise<Missing[]> {
  const servers = serversOf(clickhouse);
  const missing: Missing[] = [];
  for (const server of setBack) {
    const client = servers.all[server] as ClickHouseClient;
    const seen = await readSeen(client);
    for (let shard = 0; shard < shards; shard++) {
      if (servers.numberOf(shard) !== server) continue;
      const [to, records] = await redis.hmget(shardKeys.state(shard), 'stored_to', 'stored_records');
      const then = seen.get(String(shard)) ?? seenNothing;
      const gapless = seen.get(gaplessOf(String(shard))) ?? then;
      const later = seen.size === 0 ? 0 : await countLater(client, shard, then.storedTo);
      const since = Number(records ?? 0) - then.storedRecords;
      const mayHaveMoved = !servers.isOne && then.storedRecords > 0;
      const wasElsewhere = mayHaveMoved && !(await hasEarlier(client, shard, then.storedTo));
      missing.push({
        shard,
        server,
        records: wasElsewhere || since < 0 ? null : Math.max(0, since - later),
        after: wasElsewhere ? null : timeOf(Math.min(gapless.storedTo, then.storedTo)),
        until: timeOf(Number(to ?? 0)),
      });
    }
  }
  return missing;
}

/** How many records of a shard a server has in segments after a number. */
async function countLater(client: ClickHouseClient, shard: number, number: number): Promise<number> {
  const ofTable = (table: string) =>
    `SELECT count() AS records FROM ${table} WHERE app_id != '' AND segment > {number:UInt64} AND segment % ${shardNumberSpacing} = ${shard}`;
  const { records } = await readRow<{ records: number }>(client, {
    query: `SELECT toFloat64(sum(records)) AS records FROM (${tables.map((table) => ofTable(storedTable(table))).join(' UNION ALL ')})`,
    query_params: { number },
  });
  return records;
}

/**
 * Whether a server has any row of a shard, markers included, up to this segment number. If it has none, either another server had the
 * shard at that time or retention has dropped its rows. Then nobody knows how many of its records are missing.
 */
async function hasEarlier(client: ClickHouseClient, shard: number, number: number): Promise<boolean> {
  const ofTable = (table: string) =>
    `SELECT segment FROM ${table} WHERE segment <= {number:UInt64} AND segment % ${shardNumberSpacing} = ${shard} LIMIT 1`;
  const found = await readRows(client, {
    query: tables.map((table) => ofTable(storedTable(table))).join(' UNION ALL '),
    query_params: { number },
  });
  return found.length > 0;
}

/** Excludes the lost minutes from the ledger's checks, since it is known that records are missing there. */
async function voidLost(clickhouse: ClickHouseClient, missing: readonly Missing[]): Promise<void> {
  const minuteOf = (time: string | null) => (time === null ? 0 : Math.floor(Date.parse(time) / 60_000));
  const earliest = Math.min(...missing.map(({ after }) => minuteOf(after)));
  if (missing.length > 0) await voidSince(clickhouse, { earliest, reason: 'a server was set back' });
}

function timeOf(number: number): string | null {
  return number === 0 ? null : new Date(number / 1000).toISOString();
}

/** Rejects with AdministrationError if a server has rows of a shard that was moved away from it after the time of its data. */
async function checkNoMovedShards({ clickhouse }: AdminContext, setBack: readonly number[]): Promise<void> {
  const servers = serversOf(clickhouse);
  for (const server of setBack) {
    const shards = await readShards(servers.all[server] as ClickHouseClient);
    const moved = shards.filter((shard) => servers.numberOf(shard) !== server);
    if (moved.length > 0)
      throw new AdministrationError(
        `server ${server} has rows of shards that were moved away since: ${moved.join(', ')}. Remove them there first: in each table, ALTER TABLE … DELETE WHERE segment % ${shardNumberSpacing} IN (${moved.join(', ')})`,
      );
  }
}

/** Deletes the users of earlier requests from the servers again, where those users are still known. */
async function deleteOn(context: AdminContext, setBack: readonly number[]) {
  const { all } = serversOf(context.clickhouse);
  const clients = setBack.map((server) => all[server] as ClickHouseClient);
  const copiedAt = await Promise.all(clients.map(readCopiedAt));
  // The time of the last witness that these servers took decides, since a server that was set back takes no more. The requests that the
  // primary server has as complete do not decide: a worker or an earlier try may have copied those since. NaN if a server has no witness.
  const doneBefore = Math.min(...copiedAt.map((at) => Date.parse(at ?? ''))) - backups.clockDifferenceMsMax;
  return deleteFromOlderData(
    context.redis,
    clients,
    ({ completed_at: at }) => Date.parse(at ?? '') < doneBefore,
  );
}

/**
 * Frees the keys of the shards. From then on the index of the remaining rows decides which keys are taken, once it also has the keys of the
 * waiting segments.
 */
async function freeKeys(
  { redis, clickhouse }: AdminContext,
  setBack: readonly number[],
  { epoch, shards }: Deployment,
): Promise<void> {
  const servers = serversOf(clickhouse);
  for (const server of setBack) {
    const client = servers.all[server] as ClickHouseClient;
    for (let shard = 0; shard < shards; shard++) {
      if (servers.numberOf(shard) !== server) continue;
      const state = shardKeys.state(shard);
      const known = await redis.hget(state, 'keys_generation');
      // A new generation makes workers drop their filters of the former index.
      const generation =
        (await raiseGeneration(client, shard, known)) ??
        generationAbove(known, (await readMarkers(client)).get(shard)?.generation);
      const keys = [
        state,
        shardKeys.claims(shard),
        shardKeys.claimCounts(shard),
        shardKeys.claimMinutes(shard),
      ];
      if ((await runScript(redis, scripts.freeKeys, keys, [epoch, generation])) === null)
        throw new StateNotLoaded();
    }
  }
}
