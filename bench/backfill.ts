// How fast does history load? The 3 million flights of vega-datasets in bulk requests over a few keep-alive
// connections; afterwards ClickHouse must hold every flight once, with its delay.

import { Agent, request } from 'node:http';
import { parseArgs } from 'node:util';
import { type BackfillResult, backfillReport, writeBackfillResult } from './backfill-report.js';
import { attachDeployment, type Deployment, processNames, startDeployment } from './deployment.js';
import { BenchError } from './failure.js';
import { figure } from './figures.js';
import { type Batch, type Flights, flightsInFile, type OriginSum, openFlights } from './flights.js';
import { describeMachine } from './machine.js';
import { positive } from './options.js';
import { machineMicroseconds, othersShare } from './processes.js';
import { assertStored, countStored, untilStored } from './stored.js';

export const backfillUsage = `  backfill   loads 3 million flights in bulk and compares ClickHouse with the file; starts a deployment
             of its own unless told where one runs
    --flights N           only the first N (3000000)
    --batch N             events a request (1000)
    --connections N       requests at once (4)
    --keys                every event carries an idempotency key; a request whose fate is unknown is repeated
    --url URL             of a running API, with --app-id and --clickhouse-url; its limits have to be off:
                          npm run admin -- environments set APP_ID --limit bulk_app=none --limit bulk_identity=none
    --app-id APP_ID       an environment without events
    --clickhouse-url URL
    --database NAME       (sluice)`;

type Options = {
  readonly flights: number;
  readonly batch: number;
  readonly connections: number;
  readonly keys: boolean;
  readonly running: { readonly appId: string; readonly deployment: Deployment } | undefined;
};

const progressEveryMs = 2_000;
const requestMsMax = 30_000;

/** Runs the scenario; rejects when ClickHouse does not hold what the file says. */
export async function backfill(args: string[]): Promise<void> {
  const options = readOptions(args);
  const deployment = options.running?.deployment ?? (await startDeployment());
  let flights: Flights | undefined;
  try {
    const appId = options.running?.appId ?? (await deployment.addEnvironment('backfill', 'none'));
    if ((await countStored(deployment, appId)) > 0)
      throw new BenchError('the environment has events already');
    flights = await openFlights(options.flights);
    const expected = await flights.sums();
    const result = await load(deployment, flights, appId, options);
    await compare(deployment, appId, expected);
    const machine = await describeMachine(deployment);
    const report = { machine, options: args.join(' '), result };
    process.stdout.write(`\n${backfillReport(report)}`);
    if (options.running === undefined && options.flights === flightsInFile) writeBackfillResult(report);
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
): Promise<BackfillResult> {
  const agent = new Agent({ keepAlive: true, maxSockets: options.connections });
  const batches = flights.bodies(appId, options.batch, options.keys);
  const clock = startClock(deployment, flights);
  let acknowledged = 0;
  let bytes = 0;
  let repeats = 0;

  async function keepSending(): Promise<void> {
    for (let next = await batches.next(); !next.done; next = await batches.next()) {
      repeats += await sendUntilAcknowledged(`${deployment.url}/api/track`, agent, next.value, options.keys);
      acknowledged += next.value.events;
      bytes += next.value.body.length;
    }
  }

  const progress = showProgress(deployment, appId, options.flights, () => acknowledged);
  try {
    await Promise.all(Array.from({ length: options.connections }, keepSending));
    const sent = clock();
    await untilStored(deployment, appId, acknowledged);
    const stored = clock();
    await assertStored(deployment, appId, acknowledged);
    const costs = Object.entries(stored.cpu).map(([name, used]) => [name, used / acknowledged] as const);
    return {
      events: acknowledged,
      bytes,
      repeats,
      acknowledgedSeconds: sent.seconds,
      storedSeconds: stored.seconds,
      cpu: Object.fromEntries(costs),
      generatorCpu: sent.generatorCpu / acknowledged,
      ...(costs.length === 0 ? {} : { othersShare: stored.othersShare }),
    };
  } finally {
    progress.end();
    agent.destroy();
  }
}

/** What was used since now, of time and of CPU: each call of the function returned looks again. */
function startClock(deployment: Deployment, flights: Flights) {
  const startedAt = performance.now();
  const machineBefore = machineMicroseconds();
  const cpuBefore = deployment.cpu();
  const generatorBefore = process.cpuUsage();
  const sourceBefore = flights.cpu();
  return () => {
    const generator = process.cpuUsage(generatorBefore);
    const generatorCpu = generator.user + generator.system + flights.cpu() - sourceBefore;
    const cpuAfter = deployment.cpu();
    const used = processNames
      .filter((name) => cpuAfter[name] !== undefined)
      .map((name) => [name, (cpuAfter[name] ?? 0) - (cpuBefore[name] ?? 0)] as const);
    const own = used.reduce((sum, [, microseconds]) => sum + microseconds, generatorCpu);
    return {
      seconds: (performance.now() - startedAt) / 1000,
      cpu: Object.fromEntries(used),
      generatorCpu,
      othersShare: othersShare(machineBefore, machineMicroseconds(), own),
    };
  };
}

/** Prints how far it is every two seconds. */
function showProgress(deployment: Deployment, appId: string, total: number, acknowledged: () => number) {
  let before = 0;
  let ended = false;
  const timer = setInterval(() => {
    const now = acknowledged();
    const rate = figure(((now - before) * 1000) / progressEveryMs);
    before = now;
    countStored(deployment, appId).then(
      (stored) => {
        if (ended) return;
        const [a, b, c] = [now, total, stored].map((count) => count.toLocaleString('en-US'));
        process.stdout.write(`${a} of ${b} acknowledged, ${rate} a second; ${c} in ClickHouse\n`);
      },
      () => process.stdout.write('ClickHouse does not answer\n'),
    );
  }, progressEveryMs);
  return {
    end: () => {
      ended = true;
      clearInterval(timer);
    },
  };
}

/** Settles with how often it had to be sent again. Rejects when it is refused for good, or lost for all we know. */
async function sendUntilAcknowledged(
  url: string,
  agent: Agent,
  batch: Batch,
  keys: boolean,
): Promise<number> {
  for (let repeats = 0; ; repeats += 1) {
    const answer = await send(url, agent, batch.body);
    if (answer.status === 200 && answer.body === '{}') return repeats;
    const code = answer.status === 200 ? 'partly_refused' : codeOf(answer.body);
    const nothingStored = answer.status === 503 && code === 'overloaded';
    if (!nothingStored && !(keys && (answer.status === 0 || code === 'unknown'))) {
      throw new BenchError(`a request was answered ${answer.status}: ${answer.body.slice(0, 500)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, answer.retryAfterSeconds * 1000));
  }
}

type Answer = { readonly status: number; readonly body: string; readonly retryAfterSeconds: number };

/** Status 0: no answer, and nobody knows whether the events were stored. */
function send(url: string, agent: Agent, body: Buffer): Promise<Answer> {
  return new Promise((resolve) => {
    const silent = (error: Error) => resolve({ status: 0, body: error.message, retryAfterSeconds: 1 });
    const headers = { 'content-type': 'application/json', 'content-length': body.length };
    const sent = request(url, { method: 'POST', agent, headers, timeout: requestMsMax }, (reply) => {
      const parts: Buffer[] = [];
      reply.on('data', (part: Buffer) => parts.push(part));
      reply.on('error', silent);
      reply.on('end', () =>
        resolve({
          status: reply.statusCode ?? 0,
          body: Buffer.concat(parts).toString(),
          retryAfterSeconds: Number(reply.headers['retry-after'] ?? 1),
        }),
      );
    });
    sent.on('timeout', () => sent.destroy(new Error(`no answer within ${requestMsMax} ms`)));
    sent.on('error', silent);
    sent.end(body);
  });
}

function codeOf(body: string): string {
  try {
    return (JSON.parse(body) as { err?: { code?: string } }).err?.code ?? '';
  } catch {
    // Something else than the API answered.
    return '';
  }
}

/** Rejects unless ClickHouse and the file agree on the flights and the delay of every origin. */
async function compare(deployment: Deployment, appId: string, expected: readonly OriginSum[]): Promise<void> {
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
  const flights = stored.reduce((sum, { flights: count }) => sum + count, 0);
  const delay = stored.reduce((sum, origin) => sum + origin.delay, 0);
  process.stdout.write(
    `ClickHouse and the file agree: ${stored.length} origins, ${flights} flights, ${delay} minutes of delay\n`,
  );
}

function readOptions(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      flights: { type: 'string', default: String(flightsInFile) },
      batch: { type: 'string', default: '1000' },
      connections: { type: 'string', default: '4' },
      keys: { type: 'boolean', default: false },
      url: { type: 'string' },
      'app-id': { type: 'string' },
      'clickhouse-url': { type: 'string' },
      database: { type: 'string', default: 'sluice' },
    },
  });
  const { url, database } = values;
  const [appId, clickhouseUrl] = [values['app-id'], values['clickhouse-url']];
  if (
    (url === undefined) !== (appId === undefined) ||
    (url === undefined) !== (clickhouseUrl === undefined)
  ) {
    throw new BenchError('--url, --app-id and --clickhouse-url belong together');
  }
  return {
    flights: Math.min(positive('--flights', values.flights), flightsInFile),
    batch: positive('--batch', values.batch),
    connections: positive('--connections', values.connections),
    keys: values.keys,
    running:
      url === undefined || appId === undefined || clickhouseUrl === undefined
        ? undefined
        : { appId, deployment: attachDeployment({ url, clickhouseUrl, database }) },
  };
}
