// What does an event cost, from a request to a row in ClickHouse? One event a request and bulk requests, with
// and without idempotency keys; then, at half of the highest rate found, how long an acknowledgement takes
// and how long until the event can be queried.

import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import type { Context } from './context.js';
import { startDeployment } from './deployment.js';
import { BenchError } from './failure.js';
import { type LatencyRun, runLatency } from './latency.js';
import { describeMachine } from './machine.js';
import { positive } from './options.js';
import { pipelineReport, sayLatency, sayRun, type WayRuns, writePipelineResults } from './pipeline-report.js';
import { assertStored } from './stored.js';
import { runThroughput, ways } from './throughput.js';

const latencyName = 'latency';
const names = [...ways.map(({ name }) => name), latencyName];

export const pipelineUsage = `  pipeline   cost of an event on the whole path, highest rate, latencies; starts a deployment of its own
    --seconds N      length of one run (10)
    --repeats N      runs of each measurement, of which the median is reported (3)
    --rate N         events a second under which latencies are measured (half of the highest of single)
    --only NAMES     of ${names.join(', ')}
                     those named, with commas between
    --env NAME=VALUE environment of the API and the worker; may be given again
    --cpu-prof DIR   writes V8 CPU profiles of the API and the worker into DIR
  Results are written only by a run without the last three.`;

type Options = {
  readonly seconds: number;
  readonly repeats: number;
  readonly rate: number | undefined;
  readonly wanted: (name: string) => boolean;
  readonly env: NodeJS.ProcessEnv;
  readonly profileDir: string | undefined;
  readonly standard: boolean;
};

/** Runs the scenario and writes its results; rejects when an event was lost, doubled or refused. */
export async function pipeline(args: string[]): Promise<void> {
  const options = readOptions(args);
  const deployment = await startDeployment(options);
  const redis = new Redis(deployment.redisUrl);
  const context: Context = { deployment, redis, seconds: options.seconds, acknowledged: new Map() };
  try {
    const machine = await describeMachine(deployment);
    const throughput = await runAllWays(context, options);
    const latencies = await runLatencies(context, options, throughput);
    // Once more at the end: nothing was added later either.
    for (const [appId, events] of context.acknowledged) await assertStored(deployment, appId, events);
    const results = { machine, options: args.join(' '), throughput, latencies };
    process.stdout.write(`\n${pipelineReport(results)}`);
    if (options.standard) writePipelineResults(results);
  } finally {
    redis.disconnect();
    await deployment.stop();
  }
}

/** Round after round, so that a slow minute of the machine meets every way alike. */
async function runAllWays(context: Context, { repeats, wanted }: Options): Promise<WayRuns[]> {
  const all = ways
    .filter(({ name }) => wanted(name))
    .map((way) => ({ way, name: way.name, what: way.what, runs: [] as WayRuns['runs'][number][] }));
  for (let round = 1; round <= repeats; round += 1) {
    for (const { way, runs } of all) {
      const run = await runThroughput(context, way, round);
      runs.push(run);
      sayRun(`${way.name} ${round}/${repeats}`, run);
    }
  }
  return all.map(({ name, what, runs }) => ({ name, what, runs }));
}

async function runLatencies(
  context: Context,
  { repeats, wanted, rate: givenRate }: Options,
  throughput: readonly WayRuns[],
): Promise<LatencyRun[]> {
  if (!wanted(latencyName)) return [];
  const singles = throughput.find(({ name }) => name === 'single')?.runs ?? [];
  const rate = givenRate ?? Math.round(Math.max(...singles.map((run) => run.requestsPerSecond)) / 2);
  const latencies: LatencyRun[] = [];
  for (let round = 1; round <= repeats; round += 1) {
    const run = await runLatency(context, rate, round);
    latencies.push(run);
    sayLatency(`${latencyName} ${round}/${repeats}`, run);
  }
  return latencies;
}

function readOptions(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      seconds: { type: 'string', default: '10' },
      repeats: { type: 'string', default: '3' },
      rate: { type: 'string' },
      only: { type: 'string', default: names.join(',') },
      env: { type: 'string', multiple: true, default: [] },
      'cpu-prof': { type: 'string' },
    },
  });
  const only = values.only.split(',');
  for (const name of only) {
    if (!names.includes(name)) throw new BenchError(`--only takes ${names.join(', ')}, not ${name}`);
  }
  const rate = values.rate === undefined ? undefined : positive('--rate', values.rate);
  if (only.includes(latencyName) && !only.includes('single') && rate === undefined) {
    throw new BenchError('--only latency without single needs --rate');
  }
  const profileDir = values['cpu-prof'];
  return {
    seconds: positive('--seconds', values.seconds),
    repeats: positive('--repeats', values.repeats),
    rate,
    wanted: (name) => only.includes(name),
    env: Object.fromEntries(
      values.env.map((text) => [text.split('=')[0], text.slice(text.indexOf('=') + 1)]),
    ),
    profileDir,
    standard: only.length === names.length && values.env.length === 0 && profileDir === undefined,
  };
}
