// One session: the requested scenarios, one after another. The rounds, the connections and the latencies share a
// deployment; each other scenario starts its own. If a scenario fails the others still run, and the failure is part of
// the results.

import { Redis } from 'ioredis';
import { runBackfill } from './backlog/backfill.js';
import { runBacklog } from './backlog/backlog.js';
import { runSegments } from './backlog/segments.js';
import type { Context } from './context.js';
import { runDeletionBeside } from './deletion/beside.js';
import { attachDeployment, type Deployment, startDeployment } from './deployment/deployment.js';
import { describeFailure, messageOf } from './failure.js';
import { findHighestRate, runLatencies } from './latency/latencies.js';
import { describeMachine, type Machine } from './machine.js';
import type { Options } from './options.js';
import { preparePeers } from './peers/start.js';
import type { Progress } from './progress.js';
import type { Results } from './results.js';
import { floorNames } from './scenarios.js';
import { runSoak, type SoakResult } from './soak.js';
import { runConnections } from './throughput/connections.js';
import { runFlat } from './throughput/flat.js';
import { runKeys } from './throughput/keys.js';
import { runProducer } from './throughput/producer.js';
import { runRounds } from './throughput/rounds.js';
import { peerWays, sluiceWays } from './throughput/ways.js';

type Found = { -readonly [Key in keyof Results]?: Results[Key] };
type Failures = Results['failures'][number][];

const roundNames = [...sluiceWays, ...peerWays].map(({ name }) => name).concat(floorNames);

/** Runs the scenarios; rejects only if nothing can be measured at all. */
export async function runSession(
  names: readonly string[],
  command: string,
  options: Options,
  progress: Progress,
): Promise<Results> {
  const startedAt = performance.now();
  const wanted = new Set(names);
  const found: Found = {};
  const failures: Failures = [];
  let machine: Machine | undefined;

  const attempt = async (scenario: string, run: () => Promise<void>) => {
    if (!wanted.has(scenario)) return;
    progress.say(`${scenario} begins`);
    try {
      await run();
    } catch (error) {
      failures.push({ scenario, message: messageOf(error) });
      progress.say(`${scenario} FAILED: ${describeFailure(error)}`);
    }
  };
  const withContext = (run: (context: Context) => Promise<void>) =>
    withDeployment(options, progress, async (context) => {
      machine ??= await describeMachine(context.deployment);
      await run(context);
    });

  if (roundNames.concat('connections', 'latency').some((name) => wanted.has(name))) {
    await withContext(async (context) => {
      const peers = context.deployment.own === undefined ? undefined : preparePeers(context.deployment);
      try {
        const rounds = await runRounds(context, peers, wanted);
        found.ways = rounds.ways;
        failures.push(...rounds.failures);
        await attempt('connections', async () => {
          if (peers === undefined) throw new Error('connections are measured beside a floor');
          found.connections = await runConnections(context, peers);
        });
        await attempt('latency', async () => {
          found.latencies = await runLatencies(context, peers, rounds.ways);
        });
      } finally {
        await peers?.stop();
      }
    });
  }
  await attempt('segments', async () => {
    found.segments = await runSegments(options, progress);
  });
  await attempt('backlog', async () => {
    found.backlog = await runBacklog(options, progress);
  });
  await attempt('flat', () =>
    withContext(async (context) => {
      found.flat = await runFlat(context);
    }),
  );
  await attempt('keys', async () => {
    found.keys = await runKeys(options, progress);
  });
  await attempt('soak', () =>
    withContext(async (context) => {
      found.soak = await soak(context);
    }),
  );
  await attempt('backfill', async () => {
    found.backfill = await runBackfill(options, progress);
  });
  await attempt('producer', async () => {
    found.producer = await runProducer(options, progress);
  });
  await attempt('deletion-beside', async () => {
    found.deletionBeside = await runDeletionBeside(options, progress);
  });
  machine ??= await describeMachine(undefined);
  return {
    format: 1,
    machine,
    command,
    seconds: (performance.now() - startedAt) / 1000,
    elsewhere: options.elsewhere !== undefined,
    ways: [],
    latencies: [],
    ...found,
    failures,
  };
}

async function soak(context: Context): Promise<SoakResult> {
  const rate = context.options.rate ?? Math.round((await findHighestRate(context)) / 2);
  const [appId = ''] = await context.deployment.addEnvironments(1, 'default');
  return runSoak(context, appId, rate);
}

async function withDeployment(
  options: Options,
  progress: Progress,
  run: (context: Context) => Promise<void>,
): Promise<void> {
  const { elsewhere } = options;
  const deployment: Deployment =
    elsewhere === undefined ? await startDeployment(options) : attachDeployment(elsewhere);
  const redis = deployment.redisUrl === '' ? undefined : new Redis(deployment.redisUrl);
  try {
    await run({ deployment, redis, options, progress });
  } finally {
    redis?.disconnect();
    await deployment.stop();
  }
}
