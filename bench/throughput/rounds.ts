// Runs the service's ways, the floors and the peers in turns. A way that fails is not repeated; the others continue.

import type { Redis } from 'ioredis';
import type { Context } from '../context.js';
import { numberOf } from '../deployment/stored.js';
import { describeFailure, messageOf } from '../failure.js';
import { runEngine } from '../peers/engine.js';
import { type CommitShape, runAppend } from '../peers/redis-append.js';
import type { Failure } from '../results.js';
import { runWay, type ThroughputRun } from './throughput.js';
import { inTurns } from './turns.js';
import { engineFloor, peerWays, redisFloors, sluiceWays, type Way } from './ways.js';

const warmUpSeconds = { first: 2, later: 0.5 };
/** Used in sessions without a run of bulk-500, which would show the number. */
const standardRowsPerInsert = 15_000;

/** Runs the ways with the requested names. Failures are part of the result. */
export async function runRounds(context: Context, wanted: ReadonlySet<string>) {
  const { deployment, peers, options, progress, hasWrk } = context;
  let rowsPerInsert = standardRowsPerInsert;
  const shapes = new Map<string, CommitShape>();

  const measureWay = async ({ name, subject, cheap }: Way, round: number): Promise<ThroughputRun> => {
    const { rate } = options;
    const more = {
      rate,
      warmUpSeconds: round === 1 ? warmUpSeconds.first : warmUpSeconds.later,
      byWrk: cheap && rate === undefined && hasWrk,
    };
    if (subject !== 'sluice') {
      // A peer accepts any app_id.
      const appIds = [`${name}-${round}`];
      return runWay(context, name, { ...more, subject: await peers.subject(subject), appIds });
    }
    const before = await readCommands(deployment.redis);
    const run = await runWay(context, name, more);
    const commands = await readCommands(deployment.redis);
    const { count = 0, records = 0 } = run.commits ?? {};
    const [scripts, others] = [commands.scripts - before.scripts, commands.others - before.others];
    shapes.set(name, {
      events: Math.round(records / count) || 1,
      commands: Math.round(others / scripts) || 1,
    });
    if (name === 'bulk-500') {
      const last =
        "stored_events WHERE app_id = (SELECT app_id FROM stored_events WHERE app_id != '' ORDER BY segment DESC LIMIT 1)";
      rowsPerInsert = Math.round(await numberOf(deployment, 'count() / uniqExact(segment)', last));
    }
    return run;
  };
  const ways = [...sluiceWays, ...peerWays].map((way) => ({
    ...way,
    connections: options.connections ?? way.connections,
    run: (round: number) => measureWay(way, round),
  }));
  const { duration } = options;
  const engine = {
    ...engineFloor,
    run: (round: number) => runEngine(deployment, `engine-${round}`, rowsPerInsert, duration),
  };
  const redisAlone = redisFloors.map((floor) => ({
    ...floor,
    run: async () => {
      const commit = shapes.get(floor.way) ?? floor.usual;
      return runAppend(await peers.redis(), floor.name, commit, duration);
    },
  }));
  const floors = [engine, ...redisAlone].map((floor) => ({ ...floor, once: false, connections: undefined }));
  const turns = [...ways, ...floors]
    .filter(({ name }) => wanted.has(name))
    .sort((a, b) => position(a.name) - position(b.name))
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
      .map(({ name, what, subject, connections, runs }) => ({ name, what, subject, runs, connections })),
    failures,
  };
}

/** The two sides of a target run close together; all other ways follow. */
const order = [
  ...['uws', 'single', 'redis-single', 'single-keys', 'uws-64', 'single-keys-64'],
  ...['bulk-500', 'bulk-500-keys', 'engine', 'redis-bulk', 'fastify-single', 'fastify-bulk-500'],
];

function position(name: string): number {
  const index = order.indexOf(name);
  return index === -1 ? order.length : index;
}

/** How many scripts and other commands Redis has executed. Each commit is a script; the commands within it count as other commands. */
async function readCommands(redis: Redis): Promise<{ scripts: number; others: number }> {
  const commands = { scripts: 0, others: 0 };
  const statistics = await redis.info('commandstats');
  for (const [, name, calls] of statistics.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)) {
    if (name === 'evalsha') commands.scripts += Number(calls);
    else if (name !== 'info') commands.others += Number(calls);
  }
  return commands;
}
