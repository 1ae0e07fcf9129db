// One session: the requested scenarios, one after another. The rounds and the curve share a deployment; every other scenario has
// its own. If a scenario fails, the others still run, and the failure is part of the results.

import { Redis } from 'ioredis';
import { runBackfill } from './backlog/backfill.js';
import { backlogEnv, runBacklog } from './backlog/backlog.js';
import type { Context } from './context.js';
import { deletionNames, runDeletions } from './deletion/deletions.js';
import { startDeployment } from './deployment/deployment.js';
import { runDesk } from './desk/desk.js';
import { describeFailure, messageOf } from './failure.js';
import { runCurve } from './latency/curve.js';
import { runHalfLoad } from './latency/half-load.js';
import { findWrk, type Wrk } from './load/wrk.js';
import { describeMachine, type Machine } from './machine.js';
import type { Options } from './options.js';
import { type Peers, preparePeers } from './peers/start.js';
import type { Progress } from './progress.js';
import type { Results } from './results.js';
import { roundNames } from './scenarios.js';
import { runFlat } from './throughput/flat.js';
import { keysEnv, runKeys } from './throughput/keys.js';
import { runProducer } from './throughput/producer.js';
import { runRounds } from './throughput/rounds.js';
import { runServers } from './throughput/servers.js';

type Found = { -readonly [Key in keyof Results]?: Results[Key] };
type Failures = Results['failures'][number][];

/** Runs the scenarios; rejects only if no deployment starts. */
export async function runSession(
  names: readonly string[],
  command: string,
  options: Options,
  progress: Progress,
): Promise<Results> {
  const startedAt = performance.now();
  const wanted = new Set(names);
  const wrk = chooseWrk(progress, findWrk());
  const found: Found = {};
  const failures: Failures = [];
  let machine: Machine | undefined;

  const attempt = async (name: string, run: () => Promise<void>) => {
    progress.say(`${name} begins`);
    try {
      await run();
    } catch (error) {
      failures.push({ scenario: name, message: messageOf(error) });
      progress.say(`${name} FAILED: ${describeFailure(error)}`);
    }
  };
  const withDeployment = async (
    env: NodeJS.ProcessEnv,
    run: (context: Context, peers: Peers) => Promise<void>,
  ) => {
    const deployment = await startDeployment({ ...options, env: { ...env, ...options.env } });
    const redis = new Redis(deployment.redisUrl);
    const peers = preparePeers(deployment);
    try {
      machine ??= await describeMachine(deployment);
      await run({ deployment, redis, wrk, options, progress }, peers);
    } finally {
      await peers.stop();
      redis.disconnect();
      await deployment.stop();
    }
  };
  const alone = async (
    scenarios: readonly string[],
    run: (context: Context, peers: Peers) => Promise<Found>,
    env: NodeJS.ProcessEnv = {},
  ) => {
    const some = scenarios.filter((name) => wanted.has(name));
    if (some.length === 0) return;
    await attempt(some.join(', '), () =>
      withDeployment(env, async (context, peers) => void Object.assign(found, await run(context, peers))),
    );
  };

  if (roundNames.concat('curve').some((name) => wanted.has(name))) {
    await withDeployment({}, async (context, peers) => {
      const rounds = await runRounds(context, peers, wanted);
      found.ways = rounds.ways;
      failures.push(...rounds.failures);
      if (!wanted.has('curve')) return;
      await attempt('curve', async () => {
        found.curve = await runCurve(context);
      });
    });
  }
  await alone(['half-load'], async (context, peers) => ({ halfLoad: await runHalfLoad(context, peers) }));
  await alone(['backlog'], async (context) => ({ backlog: await runBacklog(context) }), backlogEnv);
  await alone(['flat'], async (context) => ({ flat: await runFlat(context) }));
  await alone(['keys'], async (context) => ({ keys: await runKeys(context) }), keysEnv);
  await alone(['backfill'], async (context) => ({ backfill: await runBackfill(context) }));
  await alone(['producer'], async (context) => ({ producer: await runProducer(context) }));
  if (wanted.has('servers')) {
    await attempt('servers', async () => {
      found.servers = await runServers({ wrk, options, progress });
    });
  }
  await alone(deletionNames, async (context) => ({ deletion: await runDeletions(context, wanted) }));
  await alone(['desk'], async (context) => ({ desk: await runDesk(context) }));
  return {
    format: 2,
    machine: machine ?? (await describeMachine(undefined)),
    command,
    seconds: (performance.now() - startedAt) / 1000,
    ways: [],
    ...found,
    failures,
  };
}

/** Prints if wrk is missing. */
export function chooseWrk({ say }: Pick<Progress, 'say'>, wrk: Wrk | undefined): Wrk | undefined {
  if (wrk === undefined) {
    say('wrk is not installed (package wrk): the bench itself sends, and uses as much CPU as the service');
  }
  return wrk;
}
