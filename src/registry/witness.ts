// Notices that Redis or a ClickHouse server was set back to an older copy of its data. A number that only grows, the witness, is raised
// in Redis every second, in the registry and in each shard, and copied to every ClickHouse server every few seconds. A store whose number
// is lower than another's, or than one that a process has seen, is older. An older Redis is treated as emptied: it accepts and decides
// nothing until it is loaded again. An older ClickHouse server stores nothing, and no deletion completes there, until `state recover`. No
// clocks are compared.
//
// Each process compares at its start, every second, and whenever it reconnects to Redis, before any other command of that connection.

import { setTimeout as pause } from 'node:timers/promises';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { ClickHouseSetBack, serversOf } from '../clickhouse/servers.js';
import { type Log, reportOnce } from '../log.js';
import { clickhouseSetBack } from '../metrics.js';
import { readOutstanding } from '../redis/backlog.js';
import { mastersOf, type Redis } from '../redis/client.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { takeTurn } from '../redis/lease.js';
import { areReplicasDemanded, onReplicas, toleratesLoss } from '../redis/replicas.js';
import { type Script, scripts } from '../redis/scripts.js';
import { repeat } from '../repeat.js';
import { witnesses } from '../tuning.js';
import type { Deployment } from './documents.js';
import {
  copies,
  gaplessOf,
  noteKept,
  type Part,
  readKept,
  readSeen,
  registry,
  type Seen,
  writeSeen,
} from './witness-copies.js';

export type WitnessOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly deployment: () => Pick<Deployment, 'epoch' | 'shards'> | undefined;
  readonly log: Log;
};

/** Within this time only one process copies. It is shorter than the time between two rounds that copy. */
const copyTurnMs = (witnesses.roundsPerCopy - 1) * witnesses.everyMs;

/** Starts to compare. Settles after the first attempt. */
export async function followWitness(options: WitnessOptions) {
  const { redis, log } = options;
  const comparison = createComparison(options);
  let asking: Promise<void> | undefined;
  let rounds = 0;
  let attempted = false;
  /** Whether Redis was up to date at the last check. */
  let isCurrent = false;
  let confirmedMs = performance.now();

  const faults = reportOnce(log, 'the stores cannot be compared');

  /** Compares with ClickHouse and copies to it, concurrently with the checks of Redis, which a slow ClickHouse must not hold up. */
  async function askClickHouse(): Promise<void> {
    const wasAway = !comparison.sawAll();
    await comparison.withClickHouse();
    if (!isCurrent || !comparison.hasSeen()) return;
    const isBack = wasAway && comparison.sawAll();
    if (isBack || (await takeTurn(redis, registryKeys.witnessCopyTurn, copyTurnMs))) await comparison.copy();
  }

  async function round(): Promise<void> {
    if (options.deployment() === undefined) return;
    try {
      // One query at a time: a slow server must not be asked more often.
      if (rounds % witnesses.roundsPerCopy === 0 || !comparison.sawAll()) {
        asking ??= askClickHouse()
          .catch(faults.report)
          .finally(() => {
            asking = undefined;
          });
        if (!attempted) await Promise.race([asking, pause(witnesses.firstAnswerMsMax)]);
      }
      // Only a process that has compared raises the number: an older Redis must not catch up.
      const raises =
        comparison.hasSeen() && (await takeTurn(redis, registryKeys.witnessTurn, witnesses.turnMs));
      isCurrent = await comparison.withRedis(raises);
      confirmedMs = performance.now();
      attempted = true;
      if (asking === undefined) faults.forget();
    } catch (error) {
      faults.report(error);
    }
    rounds += 1;
  }

  const { first, stop } = repeat({ work: round, everyMs: witnesses.everyMs });
  await first;
  return {
    /** Whether Redis was checked, and compared with ClickHouse if that is reachable. */
    hasCompared: () => attempted,
    /** Whether replicas have lately confirmed Redis's answers, if they have to: an isolated primary does not know of later changes. */
    isConfirmed: () =>
      !areReplicasDemanded(redis) || performance.now() - confirmedMs < witnesses.unconfirmedMsMax,
    /** The commit script refuses the records of these shards. */
    shardsWithoutState: comparison.shardsWithoutState,
    /** Checks Redis first whenever this connection is made again. */
    guard: (connection: Redis) => {
      const watch = (server: Redis) => server.on('ready', () => void comparison.checkFirst(server));
      mastersOf(connection).forEach(watch);
      connection.on('+node', watch);
    },
    close: () => void stop(),
  };
}

export type Comparison = { readonly setBack: readonly number[] };

/** Compares once, for commands. A server that does not answer is left out. */
export async function compareOnce(options: WitnessOptions): Promise<Comparison> {
  const comparison = createComparison(options);
  await comparison.withClickHouse();
  await comparison.withRedis(false);
  return { setBack: serversOf(options.clickhouse).setBack() };
}

/** Throws ClickHouseSetBack if a server lacks what it had at the last copy. Call it before relying on ClickHouse's answers. */
export async function assertCurrent(redis: Redis, clickhouse: ClickHouseClient): Promise<void> {
  const kept = await readKept(redis);
  const servers = serversOf(clickhouse);
  const seen = await Promise.all(servers.all.map((client) => readSeen(client).catch(() => undefined)));
  const setBack = seen.flatMap((parts, server) =>
    parts !== undefined && isOlder(parts, kept.get(server)) ? [server] : [],
  );
  if (setBack.length > 0) throw new ClickHouseSetBack(setBack);
}

/** Whether a server has seen less than it once had. */
function isOlder(parts: ReadonlyMap<Part, Seen>, kept = 0): boolean {
  return (parts.get(registry)?.number ?? 0) < kept;
}

function createComparison({ redis, clickhouse, deployment, log }: WitnessOptions) {
  const servers = serversOf(clickhouse);
  /** The highest number of each part that this process has seen anywhere. */
  const known = new Map<Part, number>();
  /** What Redis had at the last check. */
  let latest = new Map<Part, Seen>();
  /** The shards that lacked the deployment's state when their server last answered. In a cluster one master may be emptied. */
  const lacking = new Set<number>();
  /** Whether any server ever answered, and whether all did at the last comparison. */
  let hasSeen = false;
  let sawAll = false;
  let slack: number | undefined;

  const learn = (part: Part, number: number) => known.set(part, Math.max(known.get(part) ?? 0, number));

  /** A Redis that does not wait for its disk may lose its last second; that does not make it an older copy. */
  async function readSlack(): Promise<void> {
    // A Redis that does not answer this is assumed to be one that may lose a second.
    const policy = await redis.call('CONFIG', 'GET', 'appendfsync').catch(() => undefined);
    if (Array.isArray(policy)) slack = policy[1] === 'always' ? 0 : witnesses.slack;
  }

  /**
   * Checks a part and raises its number: a shard's up to `raised`, the registry's by `raised`. Settles with undefined if this Redis does not
   * hold the part any more.
   */
  async function check(connection: Redis, epoch: string, part: Part, raised: number) {
    const { epoch: epochKey, witness, version, restoringBackup } = registryKeys;
    const [script, keys, args] =
      part === registry
        ? [scripts.witnessRegistry, [epochKey, witness, version, restoringBackup], [lowest(part), raised]]
        : [scripts.witnessShard, [shardKeys.state(Number(part))], [epoch, lowest(part), raised]];
    return note(part, await run(connection, script, keys, args));
  }

  /** Settles with whether Redis holds the deployment and is up to date. `raises`: whether to raise the numbers. */
  async function withRedis(raises: boolean): Promise<boolean> {
    const current = deployment();
    if (current === undefined) return false;
    if (slack === undefined) await readSlack();
    const { epoch, shards } = current;
    const found = new Map<Part, Seen>();
    const ofRegistry = await check(redis, epoch, registry, raises ? 1 : 0);
    if (ofRegistry !== undefined) found.set(registry, ofRegistry);
    const raised = raises ? (ofRegistry?.number ?? 0) : 0;
    const ofShards = Array.from({ length: shards }, (_, shard) => check(redis, epoch, String(shard), raised));
    for (const [shard, seen] of (await Promise.allSettled(ofShards)).entries()) {
      // A server of a cluster may be unreachable.
      if (seen.status === 'rejected') continue;
      if (seen.value === undefined) lacking.add(shard);
      else {
        lacking.delete(shard);
        found.set(String(shard), seen.value);
      }
    }
    latest = found;
    return found.size === shards + 1;
  }

  /** Checks everything over a connection, at once, since no other command may come before. A server of a cluster refuses others' keys. */
  async function checkFirst(connection: Redis): Promise<void> {
    const { epoch, shards } = deployment() ?? { epoch: '', shards: 0 };
    if (epoch === '') return;
    const parts = [registry, ...Array.from({ length: shards }, (_, shard) => String(shard))];
    await Promise.allSettled(parts.map((part) => check(connection, epoch, part, 0)));
  }

  const slackOfLoss = toleratesLoss(redis) ? witnesses.slackOfLoss : 0;
  const lowest = (part: Part) =>
    Math.max(0, (known.get(part) ?? 0) - Math.max(slack ?? witnesses.slack, slackOfLoss));

  function note(part: Part, reply: unknown): Seen | undefined {
    if (reply === 'old') {
      log.error(
        { part: part === registry ? part : `shard ${part}`, lowest: lowest(part) },
        'Redis is older than what was seen of it: it was set back, and counts as emptied',
      );
      return undefined;
    }
    if (reply === null) return undefined;
    const [number, storedTo, storedRecords] = Array.isArray(reply) ? (reply as string[]) : [reply as string];
    const seen = {
      number: Number(number),
      storedTo: Number(storedTo ?? 0),
      storedRecords: Number(storedRecords ?? 0),
    };
    learn(part, seen.number);
    return seen;
  }

  /** Reads what the servers have seen, and records which of them are older than Redis knows. */
  async function withClickHouse(): Promise<void> {
    // Read before the servers are asked, so that each of them already has the number that Redis says it has.
    const kept = await readKept(redis);
    const seen = await Promise.all(servers.all.map((client) => readSeen(client).catch(() => undefined)));
    const setBack: number[] = [];
    for (const [server, parts] of seen.entries()) {
      const wasSetBack = servers.setBack().includes(server);
      if (parts === undefined) {
        if (wasSetBack) setBack.push(server);
        continue;
      }
      hasSeen = true;
      for (const [part, { number }] of parts) learn(part, number);
      const isSetBack = isOlder(parts, kept.get(server));
      if (isSetBack) setBack.push(server);
      if (isSetBack && !wasSetBack)
        log.error(
          { server },
          'ClickHouse is older than what was stored in it: nothing is stored until "npm run admin -- state recover"',
        );
      clickhouseSetBack.set({ server: String(server) }, isSetBack ? 1 : 0);
    }
    servers.noteSetBack(setBack);
    sawAll = !seen.includes(undefined);
  }

  /** Copies what Redis had at the last check to all servers that are not older, and records which of them have it. */
  async function copy(): Promise<void> {
    const seen = latest.get(registry);
    const epoch = deployment()?.epoch;
    if (seen === undefined || epoch === undefined) return;
    const { number } = seen;
    const kept = await readKept(redis);
    const lacksSome = (await redis.exists(registryKeys.uncopied)) === 1;
    const parts = new Map(latest);
    for (const [part, ofShard] of latest) {
      if (part === registry) continue;
      // Without an answer the servers keep the former number, which still holds.
      const found = await readOutstanding(redis, Number(part), epoch).catch(() => undefined);
      if (found !== undefined) parts.set(gaplessOf(part), { ...ofShard, storedTo: Number(found.storedTo) });
    }
    if (!lacksSome) parts.set(copies, seen);
    // An unreachable server gets the next copy.
    const results = await Promise.allSettled(
      servers.all.map(async (client, server) => {
        if (servers.setBack().includes(server)) return;
        if ((await writeSeen(client, parts, kept.get(server) ?? 0)) >= number)
          await noteKept(redis, server, number);
      }),
    );
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  return {
    withRedis,
    checkFirst,
    withClickHouse,
    copy,
    hasSeen: () => hasSeen,
    sawAll: () => sawAll,
    shardsWithoutState: () => [...lacking].sort((a, b) => a - b),
  };
}

/** Sends the script's text: a Redis that has just started knows no scripts, and no other command may come before a second attempt. */
function run(redis: Redis, script: Script, keys: string[], args: (string | number)[]): Promise<unknown> {
  // Only with replicas' confirmation: what an outgoing primary alone has seen does not count.
  return onReplicas(redis, keys[0] ?? '', () => redis.eval(script.text, script.keys, ...keys, ...args));
}
