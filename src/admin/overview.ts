// The console's first page: whether all is well and, for operators, the parts of the deployment. Every open page asks for it every few
// seconds, so it reads little: some keys of Redis, and one statement of ClickHouse.

import { readRow, readRows } from '../clickhouse/answers.js';
import { type ClickHouseClient, endingAfter } from '../clickhouse/client.js';
import { serversOf, setBackIn } from '../clickhouse/servers.js';
import { countSetAside, describeSetAside } from '../clickhouse/set-aside-parts.js';
import type { AdministrationAnswers } from '../contract/administration-answers.js';
import { AdministrationError } from '../contract/errors.js';
import { overview } from '../contract/limits.js';
import { readDifferences } from '../insights/ledger/schedule.js';
import { readRejections, readTraffic, type Span } from '../insights/traffic/charts.js';
import type { AdminContext } from '../operations/context.js';
import { readDeletions, readLostMembers, readPendingIds } from '../privacy/deletion/request.js';
import { secondsOverdue } from '../privacy/retention/due.js';
import { type Backlog, readBacklog } from '../redis/backlog.js';
import { registryKeys } from '../redis/keys.js';
import { listProcesses } from '../redis/processes.js';
import {
  accountNamed,
  appIdsOf,
  environmentNamed,
  readLoadedRegistry,
  readRegistry,
} from '../registry/registry.js';
import { retentionRuns } from '../tuning.js';

/** Problems, if any, as parts of a sentence for people; how soon records can be queried; pending deletions. */
export async function readOverview(context: AdminContext, accountId: string) {
  const { redis, config } = context;
  const snapshot = await readLoadedRegistry(redis);
  const { deployment } = snapshot;
  accountNamed(snapshot, accountId);
  const [shards, processes, servers, aside, pendingIds, lost, copies, failed, overdueSeconds, differences] =
    await Promise.all([
      readShards(context, deployment.shards),
      listProcesses(redis, Date.now()),
      askServers(context),
      Promise.all(serversOf(context.clickhouse).all.map(countSetAside)),
      readPendingIds(redis, deployment.epoch, accountId),
      readLostMembers(redis),
      redis.zcard(registryKeys.uncopied),
      countFailed(context, appIdsOf(snapshot, accountId)),
      secondsOverdue(redis),
      readDifferences(redis),
    ]);
  const oldestMs = Math.max(0, ...shards.map((shard) => shard.oldestMs));
  const stored = processes.map(({ queryable_seconds }) => queryable_seconds);
  const submittedAt = (await readDeletions(redis, pendingIds)).map(({ submitted_at }) => submitted_at).sort();
  const lostOnes = lost.filter((each) => each.accountId === accountId).length;
  // Servers that do not answer are already listed as problems.
  const isUncounted = failed instanceof Error && servers.every((facts) => facts !== undefined);
  if (isUncounted) context.log.warn({ error: failed }, 'refused rows cannot be counted');
  const longMs = Date.now() - overview.deletionPendingMs;
  const long = submittedAt.filter((at) => Date.parse(at) < longMs).length;
  const bytes = shards.reduce((sum, shard) => sum + shard.bytes, 0);
  const appIds = new Set(appIdsOf(snapshot, accountId));
  const unbalanced = differences.filter(({ app_id }) => appIds.has(app_id)).length;
  const problems = [
    ...awayIn(servers),
    ...describeSetAside(aside),
    ...setBackIn(serversOf(context.clickhouse)),
    ...withoutWorker(shards),
    ...(oldestMs > overview.lateMs
      ? [`records have been waiting for ${Math.round(oldestMs / 1000)} s to become queryable`]
      : []),
    ...(bytes > config.backlogBytesMax * overview.fullRatio
      ? ['the backlog is nearly full, and records will soon be refused']
      : []),
    ...(long > 0 ? [`${amountOf(long, 'deletion')} pending for more than ${longMinutes} minutes`] : []),
    ...(lostOnes > 0
      ? [`${amountOf(lostOnes, 'deletion')} to be submitted again, since the list of users was lost`]
      : []),
    ...(isUncounted ? ['it is not known whether ClickHouse has refused rows'] : []),
    ...(typeof failed === 'number' && failed > 0
      ? [`${amountOf(failed, 'row')} refused by ClickHouse and not stored`]
      : []),
    ...(copies > overview.copiesWaitingMax
      ? [`${copies} changes of accounts and deletions are waiting for their second copy`]
      : []),
    ...(unbalanced > 0 ? [`the records of ${amountOf(unbalanced, 'minute')} do not add up`] : []),
    ...(overdueSeconds * 1000 > retentionRuns.lateMs
      ? [`expired events should have been deleted ${Math.round(overdueSeconds / 3600)} hours ago`]
      : []),
  ];
  return {
    account_id: accountId,
    problems,
    queryable_seconds: Math.max(oldestMs / 1000, ...stored),
    deletions: { pending: submittedAt.length, oldest_at: submittedAt[0] ?? null },
  };
}

const longMinutes = overview.deletionPendingMs / 60_000;

/** `1 deletion is`, or `3 deletions are`. */
function amountOf(count: number, what: string): string {
  return count === 1 ? `1 ${what} is` : `${count} ${what}s are`;
}

/**
 * The problems of shards without a working worker. Each shard has its own ticks; one that pauses for a moment, or has nothing to do, is not
 * a problem.
 */
function withoutWorker(shards: readonly Backlog[]): string[] {
  if (shards.every(({ works }) => !works)) return ['no worker is running, so records are accepted but wait'];
  const idle = shards.flatMap(({ works, oldestMs }, shard) =>
    works || oldestMs < overview.tickMissedMs ? [] : [shard],
  );
  if (idle.length === 0) return [];
  return [
    `no worker serves ${idle.length === 1 ? 'shard' : 'shards'} ${idle.join(', ')}, so records there are accepted but wait`,
  ];
}

/** How many rows of these environments ClickHouse has refused, or the error if that is not known. */
async function countFailed({ clickhouse }: AdminContext, appIds: readonly string[]): Promise<number | Error> {
  const counts = await Promise.all(
    serversOf(clickhouse).all.map(async (client) => {
      const { failed } = await readRow<{ failed: number }>(client, {
        query: `SELECT toFloat64(count()) AS failed FROM failed_events
          WHERE table_name != '' AND app_id IN ({appIds:Array(String)})`,
        query_params: { appIds },
        ...endingAfter(overview.clickhouseMsMax),
      });
      return failed;
    }),
  ).catch((error: unknown) => (error instanceof Error ? error : new Error(String(error))));
  return counts instanceof Error ? counts : counts.reduce((sum, count) => sum + count, 0);
}

/** The parts of the deployment: shards with their backlog, processes, Redis and ClickHouse. */
export async function readDeploymentParts(context: AdminContext) {
  const { redis, config } = context;
  const { deployment } = await readLoadedRegistry(redis);
  const [shards, processes, servers, info] = await Promise.all([
    readShards(context, deployment.shards),
    listProcesses(redis, Date.now()),
    askServers(context),
    redis.info(),
  ]);
  const value = (name: string) => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1] ?? '';
  return {
    shards: shards.map(({ works, oldestMs, segments, rows, bytes }, shard) => ({
      shard,
      has_worker: works,
      segments,
      rows,
      bytes,
      oldest_seconds: oldestMs / 1000,
      server: serversOf(context.clickhouse).numberOf(shard),
    })),
    backlog_bytes_max: config.backlogBytesMax,
    processes,
    redis: {
      version: value('redis_version'),
      memory_bytes: Number(value('used_memory')),
      uptime_seconds: Number(value('uptime_in_seconds')),
    },
    clickhouse: servers[0] ?? null,
    // In the order of CLICKHOUSE_URL; null for one that does not answer.
    clickhouse_servers: servers.map((facts) => facts ?? null),
  };
}

/** The traffic of an account, or of one of its environments. */
export async function readTrafficOf(
  { redis, clickhouse }: AdminContext,
  accountId: string,
  { appId, span = 'hour' }: { readonly appId?: string | undefined; readonly span?: Span | undefined },
) {
  const snapshot = await readRegistry(redis);
  accountNamed(snapshot, accountId);
  const appIds = appIdsOf(snapshot, accountId).filter((each) => each === (appId ?? each));
  if (appId !== undefined && appIds.length === 0)
    throw new AdministrationError(`there is no environment ${appId}`);
  return readTraffic(clickhouse, appIds, span, Date.now());
}

/** Why records of an environment were rejected. */
export async function readRejectionsOf(
  { redis, clickhouse }: AdminContext,
  appId: string,
  span: Span = 'hour',
) {
  environmentNamed(await readRegistry(redis), appId);
  return readRejections(clickhouse, appId, span, Date.now());
}

function readShards({ redis }: AdminContext, count: number): Promise<Backlog[]> {
  return Promise.all(Array.from({ length: count }, (_, shard) => readBacklog(redis, shard)));
}

type ClickHouseFacts = NonNullable<AdministrationAnswers['showDeployment']['clickhouse']>;

function awayIn(servers: readonly (ClickHouseFacts | undefined)[]): string[] {
  if (servers.length === 1 && servers[0] === undefined)
    return ['ClickHouse does not answer, so records are accepted but wait'];
  return servers.flatMap((facts, number) =>
    facts === undefined
      ? [`ClickHouse server ${number} does not answer, so records of its shards are accepted but wait`]
      : [],
  );
}

function askServers({ clickhouse }: AdminContext): Promise<(ClickHouseFacts | undefined)[]> {
  return Promise.all(serversOf(clickhouse).all.map(askClickHouse));
}

/** Undefined if ClickHouse does not answer soon. */
async function askClickHouse(clickhouse: ClickHouseClient): Promise<ClickHouseFacts | undefined> {
  const asked = async () => {
    const [facts] = await readRows<ClickHouseFacts>(clickhouse, {
      query: `SELECT version() AS version, uptime() AS uptime_seconds, toFloat64(unreserved_space) AS disk_free_bytes,
          toFloat64(total_space) AS disk_bytes FROM system.disks ORDER BY unreserved_space LIMIT 1`,
      ...endingAfter(overview.clickhouseMsMax),
    });
    return facts;
  };
  return asked().catch(() => undefined);
}
