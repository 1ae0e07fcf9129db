// How fast does history load? The 3 million flights of vega-datasets in bulk requests over a few keep-alive
// connections; afterwards ClickHouse must hold every flight once, with its delay.

import {
  attachDeployment,
  type CpuTimes,
  type Deployment,
  startDeployment,
} from '../deployment/deployment.js';
import { machineMicroseconds, othersShare } from '../deployment/processes.js';
import { assertStored, countRecords, plus, type Stored, sumOf, untilCounted } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { figure } from '../figures.js';
import { createAgent, sendUntilAcknowledged } from '../load/repeated-request.js';
import type { Options } from '../options.js';
import type { Progress } from '../progress.js';
import { cpuBetween, perRecord, sumCpu } from '../throughput/measure.js';
import { type Flights, flightsInFile, type OriginSum, openFlights } from './flights.js';

export type BackfillResult = {
  readonly events: number;
  /** Of all request bodies together. */
  readonly bytes: number;
  readonly eventsPerRequest: number;
  readonly keys: boolean;
  /** Requests that were repeated after a 503. */
  readonly repeats: number;
  readonly acknowledgedSeconds: number;
  readonly storedSeconds: number;
  /** µs of CPU per event; empty if the deployment is not the bench's own. */
  readonly cpu: CpuTimes;
  /** The same for the generator: reading the file, building the requests, sending them. */
  readonly generatorCpu: number;
  /** The share of the machine's CPU time that other programs used; absent if the deployment is not the bench's own. */
  readonly othersShare?: number;
  /** Of the comparison with the file: the number of origins, and the total delay of all flights in minutes. */
  readonly origins: number;
  readonly delayMinutes: number;
};

const standardConnections = 4;

/** Rejects if ClickHouse does not hold what the file says. */
export async function runBackfill(options: Options, progress: Progress): Promise<BackfillResult> {
  const { elsewhere } = options;
  const deployment = elsewhere === undefined ? await startDeployment(options) : attachDeployment(elsewhere);
  let flights: Flights | undefined;
  try {
    const [appId = ''] = await deployment.addEnvironments(1, 'none');
    const [already] = await deployment.rows<{ n: number }>(
      `SELECT toUInt32(count()) AS n FROM events WHERE app_id = '${appId}' AND event = 'Flight'`,
    );
    if (already?.n !== 0) throw new BenchError('the environment has flights already');
    flights = await openFlights(Math.min(options.flights, flightsInFile));
    const expected = await flights.sums();
    const loaded = await load(deployment, flights, appId, options, progress);
    const compared = await compare(deployment, appId, expected);
    progress.say(
      `backfill: ClickHouse and the file agree on ${compared.origins} origins, ${figure(loaded.events)} flights`,
    );
    return { ...loaded, ...compared };
  } finally {
    await flights?.stop();
    await deployment.stop();
  }
}

async function load(
  deployment: Deployment,
  flights: Flights,
  appId: string,
  options: Options,
  progress: Progress,
): Promise<Omit<BackfillResult, 'origins' | 'delayMinutes'>> {
  const connections = options.connections ?? standardConnections;
  const { flightsBatch: eventsPerRequest, flightsKeys: keys } = options;
  const agent = createAgent(deployment.url, connections);
  const batches = flights.bodies(appId, eventsPerRequest, keys);
  const { ids: _, ...before }: Stored = await deployment.stored(appId);
  const clock = startClock(deployment, flights);
  let acknowledged = 0;
  let bytes = 0;
  let repeats = 0;

  async function keepSending(): Promise<void> {
    for (let next = await batches.next(); !next.done; next = await batches.next()) {
      repeats += await sendUntilAcknowledged(`${deployment.url}/api/track`, agent, next.value.body, keys);
      acknowledged += next.value.events;
      bytes += next.value.body.length;
    }
  }

  const watch = progress.watch(
    'backfill',
    () => `${acknowledged} of ${options.flights} flights acknowledged`,
  );
  try {
    await Promise.all(Array.from({ length: connections }, keepSending));
    const sent = clock();
    const expected = plus(before, { events: acknowledged });
    await untilCounted(() => countRecords(deployment, appId), sumOf(expected));
    const stored = clock();
    await assertStored(deployment, appId, expected);
    return {
      events: acknowledged,
      bytes,
      eventsPerRequest,
      keys,
      repeats,
      acknowledgedSeconds: sent.seconds,
      storedSeconds: stored.seconds,
      cpu: perRecord(stored.cpu, acknowledged),
      generatorCpu: sent.generatorCpu / acknowledged,
      ...(deployment.own === undefined ? {} : { othersShare: stored.othersShare }),
    };
  } finally {
    watch.end();
    agent.destroy();
  }
}

/** Measures time and CPU from now on: each call of the returned function returns what was used so far. */
function startClock(deployment: Deployment, flights: Flights) {
  const startedAt = performance.now();
  const machineBefore = machineMicroseconds();
  const cpuBefore = deployment.cpu();
  const generatorBefore = process.cpuUsage();
  const sourceBefore = flights.cpu();
  return () => {
    const generator = process.cpuUsage(generatorBefore);
    const generatorCpu = generator.user + generator.system + flights.cpu() - sourceBefore;
    const cpu = cpuBetween(cpuBefore, deployment.cpu());
    return {
      seconds: (performance.now() - startedAt) / 1000,
      cpu,
      generatorCpu,
      othersShare: othersShare(machineBefore, machineMicroseconds(), sumCpu(cpu) + generatorCpu),
    };
  };
}

/** Rejects unless ClickHouse and the file agree on the flights and the delays of every origin. */
async function compare(
  deployment: Deployment,
  appId: string,
  expected: readonly OriginSum[],
): Promise<Pick<BackfillResult, 'origins' | 'delayMinutes'>> {
  const stored = await deployment.rows<OriginSum>(
    `SELECT identity AS origin, toUInt32(count()) AS flights, sum(toFloat64OrNull(properties['delay'])) AS delay
      FROM events WHERE app_id = '${appId}' AND event = 'Flight' GROUP BY identity ORDER BY identity`,
  );
  const describe = (sum: OriginSum | undefined) =>
    sum === undefined ? 'nothing' : `${sum.origin}: ${sum.flights} flights, ${sum.delay} minutes`;
  const differing = Array.from({ length: Math.max(stored.length, expected.length) }, (_, i) => i)
    .filter((i) => describe(stored[i]) !== describe(expected[i]))
    .map((i) => `${describe(expected[i])} in the file, ${describe(stored[i])} in ClickHouse`);
  if (differing.length > 0) {
    throw new BenchError(`${differing.length} origins differ:\n${differing.slice(0, 10).join('\n')}`);
  }
  const delayMinutes = stored.reduce((sum, origin) => sum + origin.delay, 0);
  return { origins: stored.length, delayMinutes };
}
