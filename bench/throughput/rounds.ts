// Runs the service's ways, the floors and the peers in turns. A way that fails is not retried; the others go on.

import type { Context } from '../context.js';
import { numberOf } from '../deployment/stored.js';
import { deploymentSubject } from '../deployment/subject.js';
import { describeFailure, messageOf } from '../failure.js';
import { runEngine } from '../peers/engine.js';
import { type CommitShape, runAppend } from '../peers/redis-append.js';
import type { Peers } from '../peers/start.js';
import type { Failure, Results } from '../results.js';
import type { Subject } from './measure.js';
import { loadOf, runThroughput, type ThroughputRun } from './throughput.js';
import { inTurns } from './turns.js';
import { engineFloor, peerWays, redisFloors, sluiceWays, type Way } from './ways.js';

const warmUpSeconds = { first: 2, later: 0.5 };
/** For sessions without a run of bulk-500 to copy. */
const standardRowsPerInsert = 15_000;

/** Runs the ways with the wanted names; failures are part of the result. */
export async function runRounds(
  context: Context,
  peers: Peers,
  wanted: ReadonlySet<string>,
): Promise<Pick<Results, 'ways' | 'failures'>> {
  const { deployment, redis, options, progress, wrk } = context;
  let rowsPerInsert = standardRowsPerInsert;
  const shapes = new Map<string, CommitShape>();

  const runWay = async (way: Way, round: number): Promise<ThroughputRun> => {
    const isOurs = way.subject === 'sluice';
    const { run } = await runThroughput({
      ...loadOf(context, way.name, options.rate),
      subject: way.subject === 'sluice' ? deploymentSubject(deployment) : await peers.subject(way.subject),
      redis: isOurs ? redis : undefined,
      // A peer accepts any app_id.
      appIds: isOurs ? await deployment.addEnvironments(1, way.limits) : [`${way.name}-${round}`],
      warmUpSeconds: round === 1 ? warmUpSeconds.first : warmUpSeconds.later,
      wrk: way.cheap && options.rate === undefined ? wrk : undefined,
    });
    return run;
  };
  const ways = [...sluiceWays, ...peerWays].map((way) => ({
    ...way,
    connections: options.connections ?? way.connections,
    run: async (round: number) => {
      const run = await runWay(way, round);
      const shape = shapeOf(run);
      if (shape !== undefined) shapes.set(way.name, shape);
      if (way.name === 'bulk-500') {
        const last =
          "stored_events WHERE app_id = (SELECT app_id FROM stored_events WHERE app_id != '' ORDER BY segment DESC LIMIT 1)";
        rowsPerInsert = Math.round(await numberOf(deployment, 'count() / uniqExact(segment)', last));
      }
      return run;
    },
  }));
  // Only ClickHouse works: the other processes do not count.
  const { systemCpu: _system, commits: _commits, ...all } = deploymentSubject(deployment);
  const subject: Subject = { ...all, cpu: () => ({ clickhouse: all.cpu().clickhouse ?? 0 }) };
  const engine = {
    ...engineFloor,
    run: (round: number) =>
      runEngine({ deployment, subject, appId: `engine-${round}`, rowsPerBlock: rowsPerInsert, ...options }),
  };
  const redisAlone = redisFloors.map((floor) => ({
    ...floor,
    run: async (): Promise<ThroughputRun> => {
      const commit = shapes.get(floor.way) ?? floor.usual;
      return runAppend({ redis: await peers.redis(), appId: floor.name, commit, seconds: options.seconds });
    },
  }));
  const floors = [engine, ...redisAlone].map((floor) => ({ ...floor, once: false, connections: undefined }));
  const turns = [...ways, ...floors]
    .filter(({ name }) => wanted.has(name))
    .sort((a, b) => place(a.name) - place(b.name))
    .map((way) => ({ ...way, rounds: way.once ? 1 : options.repeats }));
  const failures: Failure[] = [];
  const found = await inTurns<(typeof turns)[number]>(turns, progress, {
    failed: (scenario, error) => {
      failures.push({ scenario, message: messageOf(error) });
      progress.say(`${scenario} FAILED: ${describeFailure(error)}`);
    },
  });
  return {
    ways: found
      .filter(({ runs }) => runs.length > 0)
      .map(({ name, what, subject: of, connections, runs }) => ({
        ...{ name, what, subject: of, runs },
        ...(connections && { connections }),
      })),
    failures,
  };
}

/** The two sides of a target run close together; all other ways follow. */
const order = [
  ...['uws', 'single', 'redis-single', 'single-keys', 'uws-64', 'single-keys-64'],
  ...['bulk-500', 'bulk-500-keys', 'engine', 'redis-bulk', 'fastify-single', 'fastify-bulk-500'],
];

function place(name: string): number {
  const index = order.indexOf(name);
  return index === -1 ? order.length : index;
}

/** The commits of a run; undefined if there were none. */
function shapeOf({ commits, redis }: ThroughputRun): CommitShape | undefined {
  if (commits === undefined || redis === undefined || commits.count === 0) return undefined;
  return {
    events: Math.max(1, Math.round(commits.records / commits.count)),
    commands: Math.max(1, Math.round(redis.commandsPerScript)),
  };
}
