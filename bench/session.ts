// One session: the requested scenarios, one after another, each with deployments of its own. If a scenario fails, the others still run, and
// the failure is part of the results.

import { findUnbalanced } from '../test/harness/books.js';
import { withRedis } from '../test/harness/redis-client.js';
import type { Context } from './context.js';
import { deletionNames, runDeletions } from './deletion/deletions.js';
import { runStream } from './deletion/stream.js';
import { type Deployment, type DeploymentOptions, startDeployment } from './deployment/deployment.js';
import { runDesk } from './desk/desk.js';
import { BenchError, describeFailure, messageOf } from './failure.js';
import { backlogEnv, runBacklog } from './latency/backlog.js';
import { runCurve } from './latency/curve.js';
import { runHalfLoad } from './latency/half-load.js';
import { hasWrk } from './load/wrk.js';
import { describeMachine } from './machine.js';
import type { Options } from './options.js';
import { type Peers, preparePeers } from './peers/start.js';
import type { Progress } from './progress.js';
import type { Failure, Results } from './results.js';
import { roundNames } from './scenarios.js';
import { runFlat } from './throughput/flat.js';
import { keysDeployments, runKeys } from './throughput/keys.js';
import { runBackfill, runProducer } from './throughput/programs.js';
import { replicasDeployments, runReplicas } from './throughput/replicas.js';
import { runRounds } from './throughput/rounds.js';
import { runServers, serversDeployments } from './throughput/servers.js';

type Part = {
  /** Where the results go. */
  readonly key: keyof Results;
  /** The scenarios that it measures; by default one with the name of the key. */
  readonly names?: readonly string[];
  readonly run: (context: Context) => Promise<unknown>;
  /** By default one deployment without further options. */
  readonly deployments?: (options: Options) => readonly DeploymentOptions[];
  /** Whether the ledger must balance at the end. Rows that do not come through the service are not in it. */
  readonly isBalanced?: boolean;
};

const parts: readonly Part[] = [
  { key: 'ways', names: roundNames, run: runRounds },
  { key: 'curve', run: runCurve },
  { key: 'halfLoad', names: ['half-load'], run: runHalfLoad },
  { key: 'backlog', run: runBacklog, deployments: () => [{ env: backlogEnv }] },
  {
    key: 'flat',
    run: runFlat,
    deployments: ({ flatEvents }) => flatEvents.map(() => ({})),
    isBalanced: false,
  },
  { key: 'keys', run: runKeys, deployments: keysDeployments, isBalanced: false },
  { key: 'backfill', run: runBackfill },
  { key: 'producer', run: runProducer },
  { key: 'servers', run: runServers, deployments: serversDeployments, isBalanced: false },
  { key: 'replicas', run: runReplicas, deployments: replicasDeployments, isBalanced: false },
  { key: 'deletion', names: deletionNames, run: runDeletions, isBalanced: false },
  { key: 'stream', run: runStream, isBalanced: false },
  { key: 'desk', run: runDesk, isBalanced: false },
];

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
  const found: { -readonly [Key in keyof Results]?: Results[Key] } = {};
  const failures: Failure[] = [];
  const failed = (scenario: string, error: unknown) => {
    failures.push({ scenario, message: messageOf(error) });
    progress.say(`${scenario} FAILED: ${describeFailure(error)}`);
  };

  async function runPart({ key, run, deployments = () => [{}], isBalanced = true }: Part): Promise<void> {
    const beganMs = Date.now();
    const started: Deployment[] = [];
    let peers: Peers | undefined;
    let isDone = false;
    try {
      for (const { env, ...its } of deployments(options))
        started.push(await startDeployment({ ...options, ...its, env: { ...env, ...options.env } }));
      const [deployment] = started as [Deployment];
      peers = preparePeers(deployment);
      found.machine ??= await describeMachine(deployment.sluice);
      const shared = { wanted, hasWrk: isWrkThere, options, progress, failed };
      const result = await run({ deployments: started, deployment, peers, ...shared });
      if (isBalanced) await assertBalanced(deployment.sluice, beganMs);
      Object.assign(found, { [key]: result });
      isDone = true;
    } finally {
      await peers?.stop();
      for (const deployment of started) await deployment.stop();
      if (!isDone) for (const words of started.flatMap(lastOutputsOf)) progress.say(words);
    }
  }

  for (const part of parts) {
    const scenario = (part.names ?? [part.key]).filter((name) => wanted.has(name)).join(', ');
    if (scenario === '') continue;
    progress.say(`${scenario} begins`);
    await runPart(part).catch((error: unknown) => failed(scenario, error));
  }
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
