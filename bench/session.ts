// One session: the requested scenarios, one after another. The rounds share a deployment; every other scenario has its own. If a scenario
// fails, the others still run, and the failure is part of the results.

import { findUnbalanced } from '../test/harness/books.js';
import { withRedis } from '../test/harness/redis-client.js';
import type { Context } from './context.js';
import { deletionNames, runDeletions } from './deletion/deletions.js';
import { runStream } from './deletion/stream.js';
import { type Deployment, startDeployment } from './deployment/deployment.js';
import { runDesk } from './desk/desk.js';
import { BenchError, describeFailure, messageOf } from './failure.js';
import { backlogEnv, runBacklog } from './latency/backlog.js';
import { runCurve } from './latency/curve.js';
import { runHalfLoad } from './latency/half-load.js';
import { hasWrk } from './load/wrk.js';
import { describeMachine } from './machine.js';
import type { Options } from './options.js';
import { preparePeers } from './peers/start.js';
import type { Progress } from './progress.js';
import type { Failure, Results } from './results.js';
import { roundNames } from './scenarios.js';
import { runFlat } from './throughput/flat.js';
import { keysEnv, runKeys } from './throughput/keys.js';
import { runBackfill, runProducer } from './throughput/programs.js';
import { runReplicas } from './throughput/replicas.js';
import { runRounds } from './throughput/rounds.js';
import { runServers } from './throughput/servers.js';

type Found = { -readonly [Key in keyof Results]?: Results[Key] };

/** Runs the scenarios; never rejects because one of them fails. */
export async function runSession(
  names: readonly string[],
  command: string,
  options: Options,
  progress: Progress,
): Promise<Results> {
  const startedAt = performance.now();
  const wanted = new Set(names);
  const isWrkThere = hasWrk();
  if (!isWrkThere)
    progress.say(
      'wrk is not installed (package wrk): the bench itself sends, and uses as much CPU as the service',
    );
  const found: Found = {};
  const failures: Failure[] = [];

  /** Runs those of these scenarios that were requested. */
  const attempt = async (scenarios: readonly string[], run: () => Promise<Found>) => {
    const scenario = scenarios.filter((name) => wanted.has(name)).join(', ');
    if (scenario === '') return;
    progress.say(`${scenario} begins`);
    try {
      Object.assign(found, await run());
    } catch (error) {
      failures.push({ scenario, message: messageOf(error) });
      progress.say(`${scenario} FAILED: ${describeFailure(error)}`);
    }
  };
  /** Runs a group of scenarios on a deployment of its own. */
  const alone = (
    scenarios: readonly string[],
    run: (context: Context) => Promise<Found>,
    {
      env = {},
      fillsTables = false,
    }: { readonly env?: Record<string, string>; readonly fillsTables?: boolean } = {},
  ) =>
    attempt(scenarios, async () => {
      const beganMs = Date.now();
      const deployment = await startDeployment({ ...options, env: { ...env, ...options.env } });
      const peers = preparePeers(deployment);
      let isDone = false;
      try {
        found.machine ??= await describeMachine(deployment.sluice);
        const results = await run({ deployment, peers, hasWrk: isWrkThere, options, progress });
        // Rows that do not come through the service are not in the ledger.
        if (!fillsTables) await assertBalanced(deployment.sluice, beganMs);
        isDone = true;
        return results;
      } finally {
        await peers.stop();
        await deployment.stop();
        if (!isDone) for (const words of lastOutputsOf(deployment)) progress.say(words);
      }
    });

  await alone(roundNames, async (context) => {
    const rounds = await runRounds(context, wanted);
    failures.push(...rounds.failures);
    return { ways: rounds.ways };
  });
  await alone(['curve'], async (context) => ({ curve: await runCurve(context) }));
  await alone(['half-load'], async (context) => ({ halfLoad: await runHalfLoad(context) }));
  await alone(['backlog'], async (context) => ({ backlog: await runBacklog(context) }), { env: backlogEnv });
  await alone(['flat'], async (context) => ({ flat: await runFlat(context) }), { fillsTables: true });
  await alone(['keys'], async (context) => ({ keys: await runKeys(context) }), {
    env: keysEnv,
    fillsTables: true,
  });
  await alone(['backfill'], async (context) => ({ backfill: await runBackfill(context) }));
  await alone(['producer'], async (context) => ({ producer: await runProducer(context) }));
  await attempt(['servers'], () => runServers({ options, progress }));
  await attempt(['replicas'], () => runReplicas({ options, progress }));
  const filled = { fillsTables: true };
  await alone(deletionNames, async (context) => ({ deletion: await runDeletions(context, wanted) }), filled);
  await alone(['stream'], async (context) => ({ stream: await runStream(context) }), filled);
  await alone(['desk'], async (context) => ({ desk: await runDesk(context) }), filled);
  return {
    format: 2,
    machine: await describeMachine(),
    command,
    seconds: (performance.now() - startedAt) / 1000,
    ways: [],
    ...found,
    failures,
  };
}

/** Rejects unless the deployment's own ledger balances. */
async function assertBalanced(sluice: Deployment['sluice'], sinceMs: number): Promise<void> {
  const found = await withRedis(sluice, (redis) => findUnbalanced(sluice, redis, sinceMs));
  if (found.length > 0)
    throw new BenchError(`the ledger does not balance: ${JSON.stringify(found.slice(0, 3))}`);
}

/** The last output of each process of the service, since perhaps only that shows why a scenario failed. */
function lastOutputsOf({ sluice: { api, workers, clickhouses } }: Deployment): string[] {
  return [...api, ...workers, ...clickhouses].map(
    (child) => `${child.name} wrote last:\n${child.output().slice(-outputCharsMax)}`,
  );
}

const outputCharsMax = 2_000;
