// Does an event cost the same however much is already stored? With more and more stored events, each time in turns with a
// reference deployment that stays as empty as the first; and with events spread over more and more environments.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { columns } from '../../src/clickhouse/tables.js';
import type { Context } from '../context.js';
import { type Deployment, startDeployment } from '../deployment/deployment.js';
import { mergesEnded } from '../deployment/stored.js';
import { deploymentSubject } from '../deployment/subject.js';
import { figure } from '../figures.js';
import { eventOf } from '../load/events.js';
import type { Progress } from '../progress.js';
import type { Run, Subject } from './measure.js';
import { runThroughput } from './throughput.js';
import { sluiceWays, type Way } from './ways.js';

type FlatRuns = { readonly single: readonly Run[]; readonly bulk: readonly Run[] };

export type FlatLevel = FlatRuns & { readonly events: number; readonly reference: FlatRuns };

export type FlatResult = {
  /** The runs of each way with this many stored events, and the reference's runs, with as many as the first level. */
  readonly byEvents: readonly FlatLevel[];
  /** Single events, spread over this many environments. */
  readonly byEnvironments: readonly { readonly environments: number; readonly single: readonly Run[] }[];
};

const fillRows = 500_000;
/** The rows of each made-up segment: what a service with 5000 events per second leaves. Each has a marker. */
const rowsPerSegment = 1_250;
const warmUpSeconds = 1;
/** Before anything is compared: a process's first requests cost several times as much. */
const firstRunsEnvironments = 10;
const hourMs = 3_600_000;
const filledAppId = '99999999';

export async function runFlat(context: Context): Promise<FlatResult> {
  const { deployment, options, progress } = context;
  const byEnvironments: FlatResult['byEnvironments'][number][] = [];
  await runSpread(context, await deployment.addEnvironments(firstRunsEnvironments, 'default'));
  for (const environments of options.flatEnvironments) {
    progress.say(`flat: ${environments} environments`);
    const appIds = await deployment.addEnvironments(environments, 'default');
    const single: Run[] = [];
    for (let repeat = 0; repeat < options.repeats; repeat += 1) {
      single.push(await runSpread(context, appIds));
    }
    byEnvironments.push({ environments, single });
  }
  return { byEvents: await runByEvents(context), byEnvironments };
}

async function runByEvents(context: Context): Promise<FlatLevel[]> {
  const { deployment, options, progress } = context;
  const byEvents: FlatLevel[] = [];
  const [least = 0] = options.flatEvents;
  for (const events of options.flatEvents) {
    await fill(deployment, events, progress);
    // A new reference each time, since the runs themselves store some million events.
    const reference = await startDeployment(options);
    const redis = new Redis(reference.redisUrl);
    try {
      await fill(reference, least, progress);
      await Promise.all([mergesEnded(deployment), mergesEnded(reference)]);
      // The unwritten data of the filling would delay the first commits.
      await promisify(execFile)('sync');
      const both = [context, { ...context, deployment: reference, redis }] as const;
      await warmUp(both);
      const [single, referenceSingle] = await runInTurns(both, 'single');
      const [bulk, referenceBulk] = await runInTurns(both, 'bulk-500');
      byEvents.push({ events, single, bulk, reference: { single: referenceSingle, bulk: referenceBulk } });
    } finally {
      redis.disconnect();
      await reference.stop();
    }
  }
  return byEvents;
}

type Both = readonly [grown: Context, reference: Context];

async function warmUp(both: Both): Promise<void> {
  for (const context of both) {
    for (const name of ['single', 'bulk-500'] as const) {
      const [appId = ''] = await context.deployment.addEnvironments(1, wayOf(name).limits);
      await runOne(context, wayOf(name), deploymentSubject(context.deployment), appId);
    }
  }
}

/** The grown deployment and the reference, one after the other, so that a slow minute affects both. */
async function runInTurns(both: Both, name: 'single' | 'bulk-500'): Promise<[Run[], Run[]]> {
  const way = wayOf(name);
  const { repeats } = both[0].options;
  const appIds = await Promise.all(
    both.map(({ deployment }) => deployment.addEnvironments(repeats, way.limits)),
  );
  const runs: [Run[], Run[]] = [[], []];
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    for (const which of [0, 1] as const) {
      const context = both[which];
      const subject = deploymentSubject(context.deployment);
      runs[which].push(await runOne(context, way, subject, appIds[which]?.[repeat] ?? ''));
    }
  }
  return runs;
}

/** One event per request, each of the next environment. */
function runSpread(context: Context, appIds: readonly string[]): Promise<Run> {
  const way: Way = {
    ...wayOf('single'),
    bodies: (count, { first }) =>
      Array.from({ length: count }, (_, i) => {
        const appId = appIds[(first + i) % appIds.length];
        return Buffer.from(JSON.stringify({ app_id: appId, ...eventOf(first + i, {}) }));
      }),
  };
  return runOne(context, way, wholeTable(context.deployment), '');
}

async function runOne(context: Context, way: Way, subject: Subject, appId: string): Promise<Run> {
  const { redis, options, progress } = context;
  const run = await runThroughput({
    subject,
    redis,
    way,
    appId,
    seconds: options.seconds,
    warmUpSeconds,
    connections: options.connections ?? way.connections,
    threads: options.threads,
    progress,
  });
  progress.say(`  ${way.name}: ${figure(run.cpuSum)} µs an event`);
  return run;
}

function wayOf(name: string): Way {
  const way = sluiceWays.find((candidate) => candidate.name === name);
  if (way === undefined) throw new Error(`there is no way ${name}`);
  return way;
}

/** The deployment with all of its events counted together: nobody else sends any. */
function wholeTable(deployment: Deployment): Subject {
  const stored = async () => {
    const [row] = await deployment.rows<{ events: number; ids: number }>(
      'SELECT toUInt32(count()) AS events, toUInt32(uniqExact(event_id)) AS ids FROM events',
    );
    return row ?? { ids: 0 };
  };
  const count = async () => {
    const [row] = await deployment.rows<{ n: number }>('SELECT toUInt32(count()) AS n FROM events');
    return row?.n ?? 0;
  };
  return { ...deploymentSubject(deployment), stored, count };
}

/** Adds events, as if a service had stored them recently, until there are this many in total. */
async function fill({ rows }: Deployment, events: number, progress: Progress): Promise<void> {
  const [row] = await rows<{ n: number }>('SELECT toUInt32(count()) AS n FROM events');
  const first = row?.n ?? 0;
  let stored = first;
  const segmentBase = BigInt(Date.now() - hourMs) * 1000n + BigInt(first);
  const watch = progress.watch('flat', () => `${stored} of ${events} events stored`);
  try {
    while (stored < events) {
      const count = Math.min(fillRows, events - stored);
      await rows(fillStatement(stored, count, segmentBase));
      stored += count;
    }
  } finally {
    watch.end();
  }
  progress.say(`flat: ${stored} events are stored`);
}

/** Rows of many segments in one insert, each segment with its marker; ClickHouse makes them. */
function fillStatement(first: number, count: number, segmentBase: bigint): string {
  const segment = `toUInt64(${segmentBase + BigInt(first)} + intDiv(number, ${rowsPerSegment}) * ${rowsPerSegment})`;
  const receivedAt = "fromUnixTimestamp64Micro(toInt64(segment), 'UTC')";
  return `INSERT INTO stored_events (${columns.events.join(', ')})
    SELECT '${filledAppId}', generateUUIDv4(), 'Order Completed', NULL,
      concat('user-', leftPad(toString(n % 200000), 6, '0'), '@example.com'), '', ${receivedAt},
      map('order_id', concat('order-', leftPad(toString(n), 9, '0')), 'amount', toString(n % 100000 / 100),
        'currency', ['EUR', 'USD', 'GBP', 'JPY'][1 + n % 4], 'items', toString(1 + n % 7)),
      number % ${rowsPerSegment}, segment, 1, ${receivedAt}
    FROM (SELECT number, number + ${first} AS n, ${segment} AS segment FROM numbers(${count}))
    UNION ALL
    SELECT '', toUUID('00000000-0000-0000-0000-000000000000'), '', NULL, '', '', ${receivedAt},
      CAST(map(), 'Map(String, String)'), 0, segment, 0, ${receivedAt}
    FROM (
      SELECT DISTINCT ${segment} AS segment FROM numbers(${count})
    )
    SETTINGS max_insert_threads = 1, max_threads = 1, max_block_size = ${2 * fillRows},
      min_insert_block_size_rows = ${2 * fillRows}`;
}
