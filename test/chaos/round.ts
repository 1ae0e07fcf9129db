// One round: clients send, faults happen, everything heals. When no work is left, the answers that clients got are compared with what is
// stored.

import { observeOldest } from '../../src/privacy/deletion/request.js';
import { registryKeys, segmentOfMember, shardKeys, shardOf } from '../../src/redis/keys.js';
import { deletionJobOptions, deletionQueueName, storeJobId, storeQueueName } from '../../workers/queues.js';
import { createTestAccount, type TestAccount, untilKnown } from '../harness/accounts.js';
import { findUnbalanced } from '../harness/books.js';
import { administer, getToken } from '../harness/deletion.js';
import { untilDrained } from '../harness/fault-checks.js';
import { createMark, createProducer, type Load, type Producer, startLoad } from '../harness/load.js';
import { until } from '../harness/wait.js';
import type { Broken } from './broken.js';
import { findUncalled, startCallReceiver } from './callbacks.js';
import type { Counts, Evidence } from './check.js';
import { checkInThread } from './check-thread.js';
import { createMix } from './clients.js';
import { type DeletionClients, startDeletionClients } from './deletions.js';
import { type AnyDeployment, startDead } from './deployment.js';
import { startExportedUsers } from './exported-users.js';
import { type AnyWorld, hold, type Part, type World } from './fault.js';
import { crashKinds, faultsNamed } from './faults.js';
import { childOf } from './faults-processes.js';
import { bulkIdentityMax } from './limit-windows.js';
import { createRandom, seedOf } from './random.js';
import { startReturningUsers } from './returning-users.js';
import { readStored } from './rows.js';
import type { Planned, Schedule } from './schedule.js';
import { look } from './sights.js';
import { startSuppressedUsers } from './suppressed-users.js';

/** A fault that was carried out. */
export type Done = {
  readonly fault: string;
  readonly took: boolean;
  readonly fromMs: number;
  readonly toMs: number;
  /** What went wrong while it was carried out. */
  readonly error?: string;
};

export type RoundResult = Counts & {
  readonly schedule: Schedule;
  readonly done: readonly Done[];
  readonly broken: readonly Broken[];
  readonly tookMs: number;
  readonly phasesMs: Readonly<Record<string, number>>;
  /** For how long the clock that stamps records stands still because it was set back, perhaps beyond the round. */
  readonly clockStoodMs: number;
  readonly takeOversMs?: readonly number[];
  /** The folder with what the processes wrote, if a promise was broken. */
  outputsIn?: string;
};

type Pace = {
  /** Pause of a client between two requests. */
  readonly pauseMs: number;
  /** Pause between two submissions of deletions, and how many deletions may be incomplete. */
  readonly submitEveryMs: number;
  readonly openMax: number;
  /** Pause between two polls of all incomplete deletions. */
  readonly pollEveryMs: number;
  /** Pause between two returning users. */
  readonly returnEveryMs: number;
  /**
   * Pause between two users whose data is exported, and between two who are suppressed. Without `desk` there are no such users and no
   * callbacks.
   */
  readonly desk?: { readonly exportEveryMs: number; readonly suppressEveryMs: number };
  /** How many requests of each load must be acknowledged before the faults and after them. */
  readonly beforeFaults: number;
  readonly afterFaults: number;
};
const usualPace: Pace = {
  pauseMs: 60,
  submitEveryMs: 1_200,
  openMax: 30,
  pollEveryMs: 120,
  returnEveryMs: 100,
  desk: { exportEveryMs: 2_500, suppressEveryMs: 1_500 },
  beforeFaults: 20,
  afterFaults: 30,
};
/**
 * The pace of rounds of crashes. Every record passes most crash points, so few records suffice. Deletions come often but few at a time,
 * since most crashes wait for a round of deletions, which must be short.
 */
const crashPace: Pace = {
  pauseMs: 1_000,
  submitEveryMs: 500,
  openMax: 4,
  pollEveryMs: 400,
  returnEveryMs: 1_500,
  beforeFaults: 5,
  afterFaults: 5,
};
/** Much longer than recovery takes, since the machine may be busy. */
const recoveryMsMax = 120_000;
/** How long all deletions may take while they progress: on a busy machine a round of 175 statements took 80 s. */
const deletionsMsMax = 600_000;

/** Runs a round on a healthy deployment. Whatever the service does wrong is in the result and does not reject. */
export async function runRound(deployment: AnyDeployment, schedule: Schedule): Promise<RoundResult> {
  const startedMs = performance.now();
  const beganMs = Date.now();
  const scene = await setScene(deployment, schedule);
  const { world, loads, clients, evidence, pace } = scene;
  const phasesMs: Record<string, number> = {};
  let phaseFromMs = startedMs;
  const endPhase = (name: string) => {
    phasesMs[name] = Math.round(performance.now() - phaseFromMs);
    phaseFromMs = performance.now();
  };
  const done: Done[] = [];
  const broken: Broken[] = [];
  const endsBefore = countEnds(deployment);
  const note = (kind: string) => (error: unknown) => {
    broken.push({
      kind,
      what: 'the service',
      detail: error instanceof Error ? messageOf(error) : String(error),
    });
  };
  endPhase('scene');
  try {
    await Promise.all(loads.map((load) => load.more(pace.beforeFaults)));
    for (const tracks of schedule.steps) {
      await Promise.all(tracks.map((track) => runTrack(world, track, done)));
      await startDead(deployment.sluice.workers);
    }
    endPhase('faults');
    await deployment.heal();
    endPhase('heal');
    const recovery = { deadlineMs: recoveryMsMax };
    await Promise.all(loads.map((load) => load.more(pace.afterFaults, recovery)));
  } catch (error) {
    note('not recovered')(error);
  }
  endPhase('recover');
  await Promise.all([...loads.map((load) => load.stop()), scene.stopOthers()]);
  await clients.stopSubmitting();
  await whileDraining(deployment);
  await untilDrained(deployment.sluice, deployment.redis, recoveryMsMax, deployment.shards).catch(
    async (error: Error) => {
      note('not drained')(`${messageOf(error)} ${await describeBacklog(deployment)}`);
    },
  );
  endPhase('drain');
  const notDeleted = async (error: Error) =>
    note('not deleted')(`${messageOf(error)} ${await describeDeletions(deployment)}`);
  await deployment.redis.set(registryKeys.erasureRest, '1', 'PX', deletionsMsMax);
  await untilDeleted(scene, ['hidden']).catch(notDeleted);
  const accepted = clients.submissions.filter(
    ({ outcome, state }) => outcome === 'accepted' && state !== 'targets_lost',
  );
  await look(world, 'shown though hidden', new Set(accepted.map(({ requestId }) => requestId)));
  await look(world, 'left on the disk', completeIn(clients));
  await deployment.redis.del(registryKeys.erasureRest, registryKeys.deletionRound);
  endPhase('hide');
  await untilDeleted(scene).catch(notDeleted);
  await look(world, 'left on the disk', completeIn(clients));
  endPhase('delete');
  // An export waits for the deletions before it.
  await scene.untilExported();
  endPhase('export');
  await clients.pollAll().catch(note('not polled'));
  await scene.untilCalled();
  await clients.close();
  endPhase('poll');
  const checked = await checkInThread(await evidence());
  broken.push(...world.broken, ...checked.broken, ...findLogged(scene), ...findEnded(deployment, endsBefore));
  broken.push(...(await findInBooks(deployment, beganMs)));
  scene.close();
  endPhase('check');
  return {
    schedule,
    done,
    broken,
    ...checked.counts,
    tookMs: Math.round(performance.now() - startedMs),
    phasesMs,
    clockStoodMs: world.clockStoodMs,
    takeOversMs: world.takeOversMs,
  };
}

/** Finds minutes of the round in which the ledger does not balance. */
async function findInBooks({ sluice, redis }: AnyDeployment, beganMs: number): Promise<Broken[]> {
  const found = await findUnbalanced(sluice, redis, beganMs).catch((error: Error) => [
    { app_id: messageOf(error), kind: 'unwritten', minute: '', records: 0 },
  ]);
  return found.map(({ app_id, kind, minute, records }) => ({
    kind: 'books',
    what: `environment ${app_id}`,
    detail: `${records} ${kind} of ${minute} are missing`,
  }));
}

type Scene = {
  readonly world: AnyWorld;
  readonly pace: Pace;
  readonly account: TestAccount;
  readonly producers: readonly Producer[];
  readonly loads: readonly Load[];
  readonly clients: DeletionClients;
  /** Starts no more users who return, are exported or are suppressed; settles when the present ones are done. */
  readonly stopOthers: () => Promise<void>;
  /** Settles when every export was read, or when that takes too long. */
  readonly untilExported: () => Promise<void>;
  /** Settles when the callback of every complete request has arrived, or when that takes too long. */
  readonly untilCalled: () => Promise<void>;
  readonly close: () => void;
  readonly evidence: () => Promise<Evidence>;
};

/** So many environments, whose shards are random, that each of three servers has some. */
const spreadNames = ['Main Production', ...Array.from({ length: 15 }, (_, index) => `Environment ${index}`)];

/** Two environments of the account and one of the stranger, if possible each on another ClickHouse server. */
function onAllServers(account: TestAccount, stranger: TestAccount, shards: number): string[] {
  const serverOf = (appId: string) => shardOf(appId, shards) % 3;
  const [main = ''] = account.appIds;
  const second = account.appIds.find((id) => serverOf(id) !== serverOf(main)) ?? account.appIds[1] ?? '';
  const taken = [serverOf(main), serverOf(second)];
  const third = stranger.appIds.find((id) => !taken.includes(serverOf(id))) ?? stranger.appIds[0] ?? '';
  return [main, second, third];
}

/** Makes an account with two environments, a stranger whose users have the same names, and clients of all three environments. */
async function setScene(deployment: AnyDeployment, { seed, steps }: Schedule): Promise<Scene> {
  const { sluice } = deployment;
  const crashes = steps.flat(2).some(({ fault }) => crashKinds.includes(fault));
  const pace = crashes ? crashPace : usualPace;
  const { layout, shards } = deployment;
  const names = layout !== 'three' ? ['Main Production', 'Staging'] : spreadNames;
  // The earlier round may have left dead connections, which only their next use reveals.
  const account = await until(() => createTestAccount(sluice, `Chaos ${seed}`, names), {
    what: 'the administration answers',
    everyMs: 200,
  });
  const others = layout !== 'three' ? ['Main Production'] : spreadNames;
  const stranger = await createTestAccount(sluice, `Stranger ${seed}`, others);
  const appIds =
    layout !== 'three' ? [...account.appIds, ...stranger.appIds] : onAllServers(account, stranger, shards);
  const limits = { bulk_app: 'none', bulk_identity: String(bulkIdentityMax) };
  for (const appId of appIds) {
    await until(
      () => administer(sluice, 'PATCH', `/environments/${appId}`, { limits }),
      'the service has recovered from the round before',
    );
    await untilKnown(sluice, appId);
  }
  await getToken(sluice, account);
  const receiver = await startCallReceiver();
  const path = `/accounts/${account.accountId}/callback`;
  const callback =
    pace.desk && (await administer<{ secret: string }>(sluice, 'PUT', path, { url: receiver.url }));
  const mark = createMark();
  const producers = appIds.map((appId) => createProducer(appId, mark));
  const [main, second] = producers as [Producer, Producer];
  const keptOut = createProducer(second.appId, mark);
  const targets = sluice.api.map(({ baseUrl }) => baseUrl);
  const loads = producers.map((producer) =>
    startLoad(producer, {
      targets,
      clients: producer === main ? 4 : 1,
      pauseMs: pace.pauseMs,
      next: createMix(producer),
    }),
  );
  const random = createRandom(seedOf(seed, 1));
  const clients = startDeletionClients({
    sluice,
    account,
    producer: main,
    random,
    everyMs: pace.submitEveryMs,
    pollEveryMs: pace.pollEveryMs,
    openMax: pace.openMax,
  });
  const stopReturning = startReturningUsers({
    producer: main,
    targets,
    random: createRandom(seedOf(seed, 2)),
    submit: clients.submitUsers,
    everyMs: pace.returnEveryMs,
  });
  // These users are in the second environment, since the other deletions may name any user of the first.
  const exported =
    pace.desk &&
    startExportedUsers({
      account,
      producer: second,
      targets,
      random: createRandom(seedOf(seed, 3)),
      submit: clients.submitUsers,
      everyMs: pace.desk.exportEveryMs,
    });
  const suppressing =
    pace.desk &&
    startSuppressedUsers({
      account,
      producer: second,
      keptOut,
      targets,
      random: createRandom(seedOf(seed, 4)),
      everyMs: pace.desk.suppressEveryMs,
    });
  const world: AnyWorld = {
    ...deployment,
    producer: main,
    account,
    appIds,
    emptied: [],
    setBack: [],
    clockStoodMs: 0,
    clockMoved: false,
    takeOversMs: [],
    indexLostMs: [],
    sights: [],
    broken: [],
    disturbedApis: new Set(),
  };
  return {
    world,
    pace,
    account,
    producers,
    loads,
    clients,
    stopOthers: async () => {
      await Promise.all([stopReturning(), exported?.stop(), suppressing?.stop()]);
    },
    untilExported: async () => exported?.untilRead(recoveryMsMax),
    untilCalled: async () => {
      const isDone = () =>
        callback === undefined || findUncalled(clients.submissions, receiver.calls).length === 0;
      await until(isDone, {
        deadlineMs: recoveryMsMax,
        what: 'every complete request has its callback',
      }).catch(() => undefined);
    },
    close: () => {
      receiver.close();
      for (const producer of [...producers, keptOut]) producer.close();
    },
    evidence: async () => ({
      account,
      environments: await Promise.all(
        producers.map(async (producer) => ({
          appId: producer.appId,
          history: producer.readHistory(),
          rows: await readStored(sluice, producer.appId),
          keptOut: producer === second ? keptOut.readHistory() : [],
        })),
      ),
      submissions: clients.submissions,
      tokenAnswers: clients.tokenAnswers,
      exports: exported?.exports ?? [],
      suppressed: suppressing?.suppressed ?? [],
      ...(callback && { callbacks: { calls: receiver.calls, secret: callback.secret } }),
      sights: world.sights,
      emptied: world.emptied,
      setBack: world.setBack,
      clockStoodMs: world.clockStoodMs,
      clockMoved: world.clockMoved,
      indexLostMs: world.indexLostMs,
      apiDisturbed: world.disturbedApis.size > 0,
    }),
  };
}

/**
 * Carries out faults one after another, and then restarts dead API processes, since clients wait for them. Dead workers restart only when
 * all tracks are done, so that a worker that must die in a round of deletions gets every round.
 */
async function runTrack(world: AnyWorld, track: readonly Planned[], done: Done[]): Promise<void> {
  const touched = new Set<Part>();
  for (const { fault, variant, seed } of track) {
    const found = faultsNamed(fault, world.layout)[variant];
    if (found === undefined) throw new Error(`there is no variant ${variant} of ${fault}`);
    for (const part of found.touches) touched.add(part);
    const fromMs = performance.now();
    const end = (more: Pick<Done, 'took' | 'error'>) =>
      done.push({ fault, fromMs, toMs: performance.now(), ...more });
    try {
      end({ took: await found.run(world as World, createRandom(seed)) });
    } catch (error) {
      end({ took: false, error: messageOf(error as Error) });
    }
  }
  const isApi = (part: Part): part is 'api-1' | 'api-2' => /^api-\d$/.test(part);
  await startDead([...touched].filter(isApi).map((part) => childOf(world, part)));
}

/** The requests that callers have seen complete. */
function completeIn({ submissions }: DeletionClients): ReadonlySet<string> {
  const complete = submissions.filter(({ polls }) => polls.some(({ status }) => status === 'complete'));
  return new Set(complete.map(({ requestId }) => requestId));
}

/**
 * Settles when every accepted request is complete, in one of these states, or lost with an emptied Redis. Rejects when none of them has
 * progressed for a while.
 */
async function untilDeleted({ world, clients }: Scene, enough: readonly string[] = []): Promise<void> {
  const open = () =>
    clients.submissions.filter(
      ({ outcome, polls }) => outcome === 'accepted' && polls.at(-1)?.status !== 'complete',
    );
  let seen = '';
  let progressMs = performance.now();
  const isOver = async () => {
    const submissions = open();
    const states = submissions.map(({ state }) => state).join();
    if (states !== seen) [seen, progressMs] = [states, performance.now()];
    if (performance.now() > progressMs + recoveryMsMax) return true;
    for (const submission of submissions) {
      if (submission.polls.at(-1)?.status === '404') continue;
      const path = `/deletions/${submission.requestId}`;
      const { state } = await administer<{ state: string }>(world.sluice, 'GET', path);
      submission.state = state;
      if (state !== 'targets_lost' && !enough.includes(state)) return false;
    }
    return true;
  };
  const what = 'every deletion is complete';
  await until(isOver, { deadlineMs: deletionsMsMax, what, everyMs: 100 });
  if (performance.now() <= progressMs + recoveryMsMax) return;
  const left = open().map(({ requestId, state, polls }) => ({ requestId, state, lastPoll: polls.at(-1) }));
  throw new Error(
    `not within ${recoveryMsMax} ms without progress, at ${performance.now()}: ${what}: ${JSON.stringify(left)}`,
  );
}

const allShards = (shards: number) => Array.from({ length: shards }, (_, shard) => shard);

/** Settles when nothing is outstanding, or when the backlog has not shrunk for a while. */
async function whileDraining({ redis, shards }: AnyDeployment): Promise<void> {
  let least = Number.POSITIVE_INFINITY;
  let progressMs = performance.now();
  while (least > 0 && performance.now() < progressMs + recoveryMsMax) {
    const counts = await Promise.all(
      allShards(shards).map((shard) => redis.zcard(shardKeys.segments(shard))),
    );
    const outstanding = counts.reduce((sum, count) => sum + count, 0);
    if (outstanding < least) [least, progressMs] = [outstanding, performance.now()];
    await hold(100);
  }
}

/** Describes what waits for ClickHouse, the jobs for it, and the last output of the workers. */
async function describeBacklog({ redis, sluice, shards }: AnyDeployment): Promise<string> {
  const listed = allShards(shards).map(async (shard) =>
    (await redis.zrange(shardKeys.segments(shard), '0', '-1')).map((member) => ({ shard, member })),
  );
  const members = (await Promise.all(listed)).flat();
  const jobs = await Promise.all(
    members.slice(0, 3).map(async ({ shard, member }) => {
      const id = storeJobId(segmentOfMember(member));
      return {
        shard,
        member,
        ...(await redis.hgetall(`{s${shard}}:${storeQueueName}:${id}`)),
        data: undefined,
      };
    }),
  );
  const outputs = sluice.workers.map((worker) => `${worker.name}: ${worker.output().slice(-1_500)}`);
  const lists = await Promise.all(
    [...new Set(members.map(({ shard }) => shard))].map(
      async (shard) => `shard ${shard}: ${await describeLists(redis, `{s${shard}}:${storeQueueName}`)}`,
    ),
  );
  return `${members.length} outstanding, ${JSON.stringify(jobs)}\n${lists.join('\n')}\n${outputs.join('\n')}`;
}

async function describeLists(redis: AnyDeployment['redis'], queue: string): Promise<string> {
  const names = ['active', 'wait', 'delayed', 'failed', 'stalled', 'paused', 'prioritized', 'marker'];
  const lists = await Promise.all(
    names.map(async (name) => {
      const key = `${queue}:${name}`;
      const type = await redis.type(key);
      if (type === 'zset') return `${name} ${await redis.zrange(key, '0', '19', 'WITHSCORES')}`;
      if (type === 'list') return `${name} ${await redis.lrange(key, 0, 19)}`;
      return type === 'set' ? `${name} ${(await redis.smembers(key)).slice(0, 20)}` : '';
    }),
  );
  return lists.filter((list) => list !== '').join('; ');
}

/** Describes the pending requests, their job, and the last output of the workers. */
async function describeDeletions({ redis, sluice }: AnyDeployment): Promise<string> {
  const pending = await observeOldest(redis, registryKeys.pendingDeletions, 1_000);
  const job = await redis.hgetall(`{registry}:${deletionQueueName}:${deletionJobOptions.jobId}`);
  const lists = await describeLists(redis, `{registry}:${deletionQueueName}`);
  const outputs = sluice.workers.map((worker) => `${worker.name}: ${worker.output().slice(-2_000)}`);
  return `${JSON.stringify(pending)}\njob ${JSON.stringify(job)} in ${lists}\n${outputs.join('\n')}`;
}

function findLogged({ world, producers }: Scene): Broken[] {
  const mark = producers[0]?.mark ?? '';
  return [...world.processes.values()]
    .filter((child) => child.output().includes(mark))
    .map(({ name }) => ({ kind: 'logged', what: name, detail: 'the log holds what was sent' }));
}

function countEnds({ sluice }: AnyDeployment): ReadonlyMap<string, number> {
  return new Map(
    [...sluice.api, ...sluice.workers].map((child) => [child.name, child.endedByThemselves.length]),
  );
}

/** Finds processes of ours that ended by themselves, except by SIGKILL: at a crash point a process kills itself. */
function findEnded({ sluice }: AnyDeployment, before: ReadonlyMap<string, number>): Broken[] {
  return [...sluice.api, ...sluice.workers].flatMap((child) =>
    child.endedByThemselves
      .slice(before.get(child.name))
      .filter(({ signal }) => signal !== 'SIGKILL')
      .map(({ code, signal }) => ({
        kind: 'ended',
        what: child.name,
        detail: `with ${signal ?? `code ${code}`}: ${child.output().slice(-2_000)}`,
      })),
  );
}

function messageOf(error: Error): string {
  const cause = error.cause instanceof Error ? ` (${error.cause.message.slice(0, 300)})` : '';
  return `${error.message.slice(0, 1_500)}${cause}`;
}
