// Crashes at the crash points of the code: a process is started so that it dies when it passes a point for the n-th time. Meanwhile the
// fault does what makes the process pass there.

import { type CrashPointName, crashPoints } from '../../src/crash-point.js';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { kindsOfCopies } from '../../src/registry/outbox.js';
import { inserts, segmentInserts } from '../harness/clickhouse-gate.js';
import { getToken } from '../harness/deletion.js';
import type { Child } from '../harness/services.js';
import { runProgram } from '../harness/sluice.js';
import { within } from '../harness/wait.js';
import { ofOwnUser, poisonEvent } from './clients.js';
import { type Fault, hold, type World } from './fault.js';
import { tooManyQueries } from './faults-clickhouse.js';
import { advanceClaimClock } from './faults-clocks.js';
import { childOf, disturb } from './faults-processes.js';
import { empty, restore } from './faults-redis.js';
import type { ProcessPart } from './parts.js';
import type { Random } from './random.js';

const passings = [1, 2, 3];
/**
 * Much longer than a crash takes: the machine may be busy, and only one of two workers writes the ledger each minute, which may be the other
 * one several times in a row.
 */
const crashMsMax = 600_000;
const everyMs = 100;
/** Finding refused rows takes many statements, so sending such rows more often would fill the backlog. */
const poisonEveryMs = 1_200;

/** What the fault repeats until the process dies. */
const stimuli: Partial<Record<CrashPointName, (world: World) => Promise<unknown>>> = {
  changes_copied: async ({ redis }) => {
    const [key] = (await redis.hkeys(registryKeys.documents)).filter((name) =>
      name.startsWith('environment:'),
    );
    if (key !== undefined) await redis.zadd(registryKeys.uncopied, kindsOfCopies.document, key);
  },
  token_issued: async ({ sluice, account }) => {
    for (const { baseUrl } of sluice.api) await getToken({ baseUrl }, account);
  },
  token_burnt: async ({ gate }) => {
    let left = 1;
    gate.pretend((statement) => segmentInserts(statement) && left-- > 0);
  },
  // Segments are compressed only when they wait for long.
  segment_compressed: async ({ gate }) => gate.refuse(inserts, tooManyQueries),
  keys_added: letKeysAge,
  keys_marked: letKeysAge,
  keys_index_noted: letKeysAge,
  bad_rows_found: sendPoison,
  bad_rows_kept: sendPoison,
  bad_rows_taken_out: sendPoison,
};

/**
 * Advances the clock of claims, so that workers must index keys in order to forget them: by much more than a segment may stay unindexed,
 * and so often that the longest window ends within seconds.
 */
async function letKeysAge({ redis }: World): Promise<void> {
  await advanceClaimClock(redis, 60);
}

async function sendPoison({ producer, sluice }: World): Promise<void> {
  await producer.sendTo('bulk', sluice.baseUrl, [poisonEvent(producer), ofOwnUser(producer)]);
}

/** Points that a process passes only in rounds of deletions, which wait for each other. */
const pointsOfRounds = new Set<string>([
  ...crashPoints.worker.slice(crashPoints.worker.indexOf('targets_kept')),
  ...crashPoints.erasure,
]);

const pointsOfWorkers: readonly CrashPointName[] = [...crashPoints.worker, ...crashPoints.erasure];

/** Points at which Redis and ClickHouse know different things about a deletion. */
const pointsOfDeletions: readonly CrashPointName[] = [
  'changes_copied',
  ...pointsOfWorkers.filter((point) => pointsOfRounds.has(point)),
];

/** A crash of one process when it passes a point for the n-th time. It stays dead until the next fault or the round restarts it. */
function crashOf(part: ProcessPart, point: CrashPointName, passing: number): Fault {
  return {
    name: crashName(point, passing),
    touches: [part],
    run: async (world) => {
      disturb(world, part);
      const child = childOf(world, part);
      world.altered.add(child.name);
      // A process that dies in its turn keeps the turn for ten seconds; only one of the crashes waits for its end.
      const isWaitedFor = point === 'keys_marked' && passing === 1;
      if (stimuli[point] === letKeysAge && !isWaitedFor) await world.redis.del(shardKeys.indexing(0));
      // The process may die before it is ready.
      await child.restart({ CRASH_AT: `${point}:${passing}` }).catch(() => undefined);
      const stop = repeat(world, point);
      const died = await within(child.exited, crashMsMax).catch(() => undefined);
      await stop();
      return died?.signal === 'SIGKILL';
    },
  };
}

/** Does what makes a process pass a point until the returned function is called. */
export function repeat(world: World, point: CrashPointName): () => Promise<void> {
  let stopped = false;
  const work = async () => {
    while (!stopped) {
      await stimuli[point]?.(world).catch(() => undefined);
      if (pointsOfRounds.has(point)) await world.redis.del(registryKeys.deletionRound);
      const pauseMs = stimuli[point] === sendPoison ? poisonEveryMs : everyMs;
      for (const endMs = performance.now() + pauseMs; performance.now() < endMs && !stopped; ) {
        await hold(everyMs);
      }
    }
    if (stimuli[point] !== undefined) world.gate.pass();
  };
  const running = work();
  return async () => {
    stopped = true;
    await running;
  };
}

/** Three restores in a row die at a point that each passes once; the fourth must succeed. */
function crashOfRestore(point: CrashPointName): Fault {
  return {
    name: `three crashes at ${point}`,
    touches: ['redis', 'clickhouse', 'gate'],
    run: async (world, random) => {
      const losses = [await empty(world, random)];
      let died = 0;
      for (let left = passings.length; left > 0; left -= 1) {
        const env = { ...world.sluice.env, CRASH_AT: `${point}:1` };
        await runProgram('src/admin/main.js', ['state', 'reload'], env).catch((error: Error) => {
          if (error.message.includes('SIGKILL')) died += 1;
        });
        // A killed restore keeps the right to load for some seconds; the tests of restores wait for that to end.
        await world.redis.del(registryKeys.loading);
        // After the last point all is restored, so Redis must be emptied again for the next restore.
        if (point === 'epoch_restored' && left > 1) losses.push(await empty(world, random));
      }
      await world.sluice.admin('state', 'reload');
      for (const loss of losses) loss.toMs = performance.now();
      return died === passings.length;
    },
  };
}

/**
 * A worker dies in a deletion, and then Redis is emptied. The other worker is paused before the crash, so that it cannot take the round
 * over; half of the time it continues while Redis is empty.
 */
function emptiedAfterCrash(name: string, pointOf: (random: Random) => CrashPointName): Fault {
  return {
    name,
    touches: ['worker-1', 'worker-2', 'redis', 'clickhouse', 'gate'],
    run: async (world, random) => {
      const [dying, other] = random.shuffle(world.sluice.workers) as [Child, Child];
      const point = pointOf(random);
      other.sigstop();
      world.altered.add(dying.name);
      await dying.restart({ CRASH_AT: `${point}:1` }).catch(() => undefined);
      const stop = repeat(world, point);
      const died = await within(dying.exited, crashMsMax).catch(() => undefined);
      await stop();
      // Gives callers time to see that the request is complete.
      await hold(random.int(0, 500));
      await empty(world, random);
      if (random.int(0, 1) === 1) {
        other.sigcont();
        await hold(random.int(500, 3_000));
      }
      await restore(world);
      other.sigcont();
      await dying.restart();
      world.altered.delete(dying.name);
      return died?.signal === 'SIGKILL';
    },
  };
}

export function crashName(point: CrashPointName, passing: number): string {
  return `crash at ${point}:${passing}`;
}

/**
 * Points that a process passes only while records cannot be stored, because ClickHouse refuses them or forgotten keys are not indexed yet.
 * Rounds of deletions wait meanwhile.
 */
const pointsWithoutStoring = new Set<string>(
  crashPoints.worker.filter(
    (point) =>
      point === 'segment_compressed' || stimuli[point] === sendPoison || stimuli[point] === letKeysAge,
  ),
);

/**
 * Crashes that exclude each other, since there is only one round of deletions at a time, and none while records cannot be stored. Two
 * processes that must die at such points would wait for each other.
 */
export const excludingCrashes: ReadonlySet<string> = new Set(
  pointsOfWorkers
    .filter((point) => pointsOfRounds.has(point) || pointsWithoutStoring.has(point))
    .flatMap((point) => passings.map((passing) => crashName(point, passing))),
);

/** The third passings of points that each round of deletions passes once, which take minutes. */
export const slowCrashes: ReadonlySet<string> = new Set(
  pointsOfWorkers
    .filter((point) => pointsOfRounds.has(point))
    .map((point) => crashName(point, passings.length)),
);

/** The steps of a deletion, in their order, at which rounds end in the test `deletion-crash`. */
export const deletionSteps: readonly CrashPointName[] = crashPoints.worker.filter((point) =>
  pointsOfRounds.has(point),
);

export const crashFaults: readonly Fault[] = [
  ...crashPoints.api.flatMap((point) =>
    passings.flatMap((n) => [crashOf('api-1', point, n), crashOf('api-2', point, n)]),
  ),
  ...pointsOfWorkers.flatMap((point) =>
    passings.flatMap((n) => [crashOf('worker-1', point, n), crashOf('worker-2', point, n)]),
  ),
  ...crashPoints.restore.map(crashOfRestore),
  ...pointsOfDeletions.map((point) =>
    emptiedAfterCrash(`redis emptied after a crash at ${point}`, () => point),
  ),
];

/** A worker dies at a random step of a deletion, and then Redis is emptied. */
export const emptiedAfterAnyCrash: Fault = emptiedAfterCrash(
  'redis emptied after a crash in a deletion',
  (random) => random.pick(pointsOfDeletions),
);
