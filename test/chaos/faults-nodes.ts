// Hosts of Redis are lost: another server takes over, and the former primary comes back. Only one host is lost at a time, since an
// acknowledged record is on two of them. A fault ends when all servers have everything again.

import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ShardView } from '../../src/admin/shards.js';
import { type CrashPointName, crashPoints } from '../../src/crash-point.js';
import { registryKeys, shardKeys, shardOf } from '../../src/redis/keys.js';
import { deletionRounds } from '../../src/tuning.js';
import { createTestAccount } from '../harness/accounts.js';
import { type Child, startChild } from '../harness/child.js';
import { administer } from '../harness/deletion.js';
import { until, within } from '../harness/wait.js';
import type { DeploymentOfNodes, Node } from './deployment-of-nodes.js';
import { type AnyWorld, type Fault, hold, type Part, type World } from './fault.js';
import { repeat } from './faults-crashes.js';
import { maskFaults } from './faults-masks.js';
import { childOf, disturb, processFaultsOfNodes } from './faults-processes.js';
import { noteEmptied, restore } from './faults-redis.js';
import type { ProcessPart } from './parts.js';
import type { Random } from './random.js';

type NodesWorld = AnyWorld & Pick<DeploymentOfNodes, 'nodes' | 'ownerOf' | 'untilReplicated'>;

const hosts: readonly Part[] = ['redis'];
const takeOverMsMax = 30_000;
/** Longer than all steps of a round of deletions take on a busy machine. */
const stepMsMax = 60_000;
const commandMsMax = 120_000;

/** Loses a host; settles with a function that brings it back. */
type Loss = (node: Node, others: readonly Node[]) => Promise<() => Promise<unknown>>;

const killed: Loss = async ({ server }) => {
  await server.kill9();
  return () => server.restart();
};

const burnt: Loss = async ({ server }) => {
  await server.kill9();
  rmSync(join(server.dir, 'appendonlydir'), { recursive: true, force: true });
  return () => server.restart();
};

const frozen: Loss = async ({ server, sentinel }) => {
  for (const child of [server, sentinel]) child?.sigstop();
  return async () => {
    for (const child of [server, sentinel]) child?.sigcont();
  };
};

const cutOff: Loss = async ({ host }) => {
  host.cut();
  return async () => host.join();
};

/** Our processes still reach the host, and its own sentinel still calls it the primary. */
const cutFromOthers: Loss = async ({ host }, others) => {
  for (const other of others) host.cutFrom(other.host);
  return async () => host.join();
};

async function primaryOf({ nodes, ownerOf }: NodesWorld, key: string): Promise<Node> {
  const server = await ownerOf(key);
  return nodes.find((node) => node.server === server) as Node;
}

/** A key of the busiest shard, or sometimes of the registry, which on a cluster may have another primary. */
function keyOf({ producer, shards }: NodesWorld, random: Random): string {
  const ofShard = shardKeys.state(shardOf(producer.appId, shards));
  return random.pick([ofShard, ofShard, registryKeys.epoch]);
}

function firstAcceptedAfter({ producer }: NodesWorld, ms: number) {
  return producer.settled.find(({ invokedMs, outcome }) => invokedMs > ms && outcome === 'acknowledged');
}

/** Loses a primary until another server has taken over and accepts records (if Redis is not empty), and `moreMs` longer. */
async function takeOver(
  world: NodesWorld,
  random: Random,
  loss: Loss,
  { moreMs = 0, isEmpty = false } = {},
): Promise<void> {
  const key = keyOf(world, random);
  const primary = await primaryOf(world, key);
  const comeBack = await loss(
    primary,
    world.nodes.filter((node) => node !== primary),
  );
  const lostMs = performance.now();
  try {
    await until(async () => (await primaryOf(world, key)) !== primary, {
      deadlineMs: takeOverMsMax,
      what: 'another server is the primary',
    });
    if (!isEmpty) {
      const accepted = await until(() => firstAcceptedAfter(world, lostMs), {
        deadlineMs: takeOverMsMax,
        what: 'a record is accepted',
      });
      if (key !== registryKeys.epoch) world.takeOversMs.push(Math.round(accepted.settledMs - lostMs));
    }
    await hold(moreMs);
  } finally {
    await comeBack();
  }
  await world.untilReplicated();
}

function primaryIs(what: string, loss: Loss, moreMsMax: number): Fault<NodesWorld> {
  return {
    name: `primary ${what}`,
    touches: hosts,
    run: async (world, random) => {
      await takeOver(world, random, loss, { moreMs: random.int(0, moreMsMax) });
      return true;
    },
  };
}

/** Freezes the primary for about as long as it takes until another server takes over. */
const briefly: Fault<NodesWorld> = {
  name: 'primary frozen for a moment',
  touches: hosts,
  run: async (world, random) => {
    const primary = await primaryOf(world, keyOf(world, random));
    const comeBack = await frozen(primary, []);
    await hold(random.int(200, 1_500));
    await comeBack();
    await world.untilReplicated();
    return true;
  },
};

const startedAgain: Fault<NodesWorld> = {
  name: 'primary killed and started at once',
  touches: hosts,
  run: async (world, random) => {
    const comeBack = await killed(await primaryOf(world, keyOf(world, random)), []);
    await comeBack();
    await world.untilReplicated();
    return true;
  },
};

const twice: Fault<NodesWorld> = {
  name: 'two take-overs within a minute',
  touches: hosts,
  run: async (world, random) => {
    const begun = performance.now();
    await takeOver(world, random, random.pick([killed, frozen, cutOff]));
    await takeOver(world, random, random.pick([killed, burnt, cutOff]));
    return performance.now() - begun < 60_000;
  },
};

function replicaIs(what: string, loss: Loss): Fault<NodesWorld> {
  return {
    name: `replica ${what}`,
    touches: hosts,
    run: async (world, random) => {
      const keys = [
        registryKeys.epoch,
        ...Array.from({ length: world.shards }, (_, n) => shardKeys.state(n)),
      ];
      const primaries = await Promise.all(keys.map((key) => primaryOf(world, key)));
      const replica = random.pick(world.nodes.filter((node) => !primaries.includes(node)));
      const comeBack = await loss(
        replica,
        world.nodes.filter((node) => node !== replica),
      );
      await hold(random.int(500, 5_000));
      await comeBack();
      await world.untilReplicated();
      return true;
    },
  };
}

/** A process is paused at a step while another server takes over, and then continues with what it knew. */
function takeOverAt(
  part: ProcessPart,
  points: readonly CrashPointName[],
  passingsMax: number,
): Fault<NodesWorld> {
  const kind = part.replace(/-\d$/, '');
  return {
    name: `take-over in a step of ${kind}`,
    touches: [part, ...hosts],
    run: async (world, random) => {
      disturb(world, part);
      const child = childOf(world, part);
      const point = random.pick(points);
      await child.restart({ CRASH_AT: `${point}:${random.int(1, passingsMax)}:stop` });
      const stop = repeat(world as unknown as World, point);
      const stopped = await untilStopped(child);
      await stop();
      try {
        if (stopped) await takeOver(world, random, random.pick([killed, frozen, cutOff]));
      } finally {
        child.sigcont();
      }
      return stopped;
    },
  };
}

/** The same with the process of a command. What the command leaves undone, a later one does. */
async function takeOverInCommand(
  world: NodesWorld,
  random: Random,
  args: readonly string[],
  points: readonly CrashPointName[],
  isEmpty = false,
): Promise<boolean> {
  const main = fileURLToPath(new URL('../../src/admin/main.js', import.meta.url));
  const env = { ...world.sluice.env, CRASH_AT: `${random.pick(points)}:1:stop` };
  const command = await startChild({
    name: 'admin',
    program: { command: process.execPath, args: [main, ...args], env },
    healthy: () => true,
    healthyDeadlineMs: 10_000,
  });
  const stopped = await untilStopped(command);
  try {
    if (stopped) await takeOver(world, random, random.pick([killed, frozen, cutOff]), { isEmpty });
  } finally {
    command.sigcont();
    await within(command.exited, commandMsMax).catch(() => command.kill9());
  }
  return stopped;
}

const inMove: Fault<NodesWorld> = {
  name: 'take-over in a move',
  touches: ['shards', ...hosts],
  run: async (world, random) => {
    const { sluice, shards, failedMoves } = world;
    const shard = random.int(0, shards - 1);
    const its = ((await sluice.admin('shards', 'list')) as ShardView[]).find((each) => each.shard === shard);
    const to = its?.moving_to ?? ((its?.server ?? 0) + 1) % sluice.clickhouses.length;
    failedMoves.set(shard, to);
    const args = ['shards', 'move', String(shard), '--to', String(to)];
    return takeOverInCommand(world, random, args, crashPoints.move);
  },
};

/** Takes the turn of rounds of deletions again and again, so that none begins: it would take over from a run of retention. */
async function withoutRounds<Result>({ redis }: NodesWorld, work: () => Promise<Result>): Promise<Result> {
  const take = () =>
    void redis.set(registryKeys.deletionRound, '1', 'PX', deletionRounds.everyMs).catch(() => undefined);
  take();
  const timer = setInterval(take, deletionRounds.everyMs / 10);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

/** Restarts a worker so that it begins a run of retention, which it does if one is due and no round of deletions is running. */
async function beginRetention({ redis }: NodesWorld, worker: Child, env = {}): Promise<void> {
  const what = 'no round of deletions runs';
  const isFree = async () => (await redis.exists(registryKeys.maintenanceLock)) === 0;
  await until(isFree, { deadlineMs: stepMsMax, what });
  await redis.del(registryKeys.retentionRun);
  await worker.restart(env);
}

/**
 * A new environment has one month whose rows have all expired, and one of which half have. After the take-over exactly the expired rows
 * must be gone.
 */
const inRetention: Fault<NodesWorld> = {
  name: 'take-over in a run of retention',
  touches: ['worker-1', 'passes', 'shards', 'clickhouse-1', 'clickhouse-2', ...hosts],
  run: async (world, random) => {
    const { sluice, broken } = world;
    const { appIds } = await createTestAccount(sluice, `Retaining ${random.int(0, 2 ** 31)}`);
    const [appId = ''] = appIds;
    const shards = (await sluice.admin('shards', 'list')) as ShardView[];
    const its = shards.find(({ shard }) => shard === shardOf(appId, world.shards));
    const server = sluice.clickhouses[its?.server ?? 0] ?? sluice.clickhouse;
    const events = `${sluice.database}.stored_events`;
    const rows = [
      ['old', 400, 400],
      ['old', 40, 400],
      ['new', 40, 0],
    ].map(
      ([event, segment, received]) =>
        `SELECT '${appId}', '${event}', '${event}', toUInt64(toUnixTimestamp64Micro(now64(6) - INTERVAL ${segment} DAY)), now64(3) - INTERVAL ${received} DAY`,
    );
    const insert = `INSERT INTO ${events} (app_id, identity, event, segment, received_at)`;
    await server.query(
      `${insert} ${rows.join(' UNION ALL ')} SETTINGS log_comment = 'store asked by a test'`,
    );
    await administer(sluice, 'PATCH', `/environments/${appId}`, { retain_days: 30 });
    const left = async () =>
      (
        await server.query(`SELECT arraySort(groupArray(event)) FROM ${events} WHERE app_id = '${appId}'`)
      ).trim();
    const worker = childOf(world, 'worker-1');
    const expired = async () => (await left()) === "['new']";
    const stopped = await withoutRounds(world, async () => {
      await beginRetention(world, worker, { CRASH_AT: `${random.pick(crashPoints.retention)}:1:stop` });
      const isStopped = await untilStopped(worker);
      try {
        if (isStopped) await takeOver(world, random, random.pick([killed, frozen, cutOff]));
      } finally {
        worker.sigcont();
      }
      for (let tries = 0; tries < 3 && !(await expired()); tries += 1) {
        await beginRetention(world, worker);
        await until(expired, { deadlineMs: stepMsMax, what: 'it has expired' }).catch(() => undefined);
      }
      return isStopped;
    });
    if (!(await expired())) broken.push({ kind: 'wrongly retained', what: appId, detail: await left() });
    return stopped;
  },
};

const inReload: Fault<NodesWorld> = {
  name: 'take-over while the state is loaded',
  touches: [...hosts, 'clickhouse-1', 'clickhouse-2', 'shards'],
  run: async (world, random) => {
    await noteEmptied(world);
    const stopped = await takeOverInCommand(world, random, ['state', 'reload'], crashPoints.restore, true);
    await restore(world);
    return stopped;
  },
};

async function untilStopped(child: Child): Promise<boolean> {
  const isStopped = () => {
    try {
      // The state follows the name, which is in brackets and may contain anything.
      return readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ').at(-1)?.startsWith('T');
    } catch {
      return false; // It has ended.
    }
  };
  return until(isStopped, { deadlineMs: stepMsMax, what: 'it has stopped' }).catch(() => false);
}

/** The points that a worker passes without a fault of ClickHouse. */
const stepsOfWorkers = [...crashPoints.worker, ...crashPoints.erasure].filter(
  (point) => !/^(?:token_|bad_|segment_compressed|keys_(?:added|marked|index))/.test(point),
);
const stepsOfApi = [
  'commit_packed',
  'commit_sent',
  'commit_answered',
  'deletion_stored',
  'fence_taken',
] as const;

/** Only rounds of these layouts draw these faults, so their world has the nodes. */
const takeOvers = [
  ...processFaultsOfNodes,
  ...maskFaults(['clickhouse-1', 'clickhouse-2']),
  primaryIs('killed', killed, 2_000),
  primaryIs('burnt', burnt, 2_000),
  primaryIs('frozen', frozen, 8_000),
  primaryIs('cut off', cutOff, 8_000),
  primaryIs('cut off from the other hosts', cutFromOthers, 15_000),
  briefly,
  startedAgain,
  twice,
  replicaIs('killed', killed),
  replicaIs('burnt', burnt),
  replicaIs('frozen', frozen),
  replicaIs('cut off', cutOff),
  ...(['worker-1', 'worker-2'] as const).map((part) => takeOverAt(part, stepsOfWorkers, 2)),
  ...(['api-1', 'api-2'] as const).map((part) => takeOverAt(part, stepsOfApi, 9)),
  inMove,
  inRetention,
] as readonly Fault<never>[] as readonly Fault[];

export const clusterFaults = takeOvers;
/** Without a cluster, since nothing empties all of its masters in one step. */
export const nodeFaults = [...takeOvers, inReload as Fault<never> as Fault];
