// Does an event cost the same however much is already stored, and however many environments there are? Deployments with more and
// more stored events stand side by side and take turns; so do more and more environments of the first of them.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { columns } from '../../src/clickhouse/tables.js';
import type { Context } from '../context.js';
import { type Deployment, startDeployment } from '../deployment/deployment.js';
import { mergesEnded } from '../deployment/stored.js';
import { deploymentSubject } from '../deployment/subject.js';
import { figure } from '../figures.js';
import type { Progress } from '../progress.js';
import type { Run, Subject } from './measure.js';
import { runThroughput } from './throughput.js';
import { type Way, wayNamed } from './ways.js';

/** Runs of one level; those of all levels took turns. */
export type FlatLevel = { readonly of: number; readonly runs: readonly Run[] };

export type FlatResult = {
  /** By stored events. */
  readonly single: readonly FlatLevel[];
  readonly bulk: readonly FlatLevel[];
  /** Single events, by environments that they are spread over. */
  readonly environments: readonly FlatLevel[];
};

const fillRows = 500_000;
/** The rows of each made-up segment: what a service with 5000 events per second leaves. Each has a marker. */
const rowsPerSegment = 1_250;
const warmUpSeconds = 1;
const hourMs = 3_600_000;
const filledAppId = '99999999';

/** A level: how much of what is counted, and a run of it. */
type Turn = { readonly of: number; readonly run: () => Promise<Run> };

export async function runFlat(context: Context): Promise<FlatResult> {
  const { options, progress } = context;
  const [first = 0, ...more] = options.flatEvents;
  const levels = [{ events: first, deployment: context.deployment }];
  try {
    for (const events of more) levels.push({ events, deployment: await startDeployment(options) });
    for (const { events, deployment } of levels) await fill(deployment, events, progress);
    await Promise.all(levels.map(({ deployment }) => mergesEnded(deployment)));
    // The unwritten data of the filling would delay the first commits.
    await promisify(execFile)('sync');
    const byEvents = (name: string) => {
      const way = wayNamed(name);
      const turns = levels.map(({ events, deployment }): Turn => {
        const run = async () =>
          runOne(
            context,
            way,
            deploymentSubject(deployment),
            await deployment.addEnvironments(1, way.limits),
          );
        return { of: events, run };
      });
      return runInTurns(context, name, turns);
    };
    const single = await byEvents('single');
    const bulk = await byEvents('bulk-500');
    const spread: Turn[] = [];
    for (const of of options.flatEnvironments) {
      const appIds = await context.deployment.addEnvironments(of, 'default');
      const run = () => runOne(context, wayNamed('single'), wholeTable(context.deployment), appIds);
      spread.push({ of, run });
    }
    return { single, bulk, environments: await runInTurns(context, 'environments', spread) };
  } finally {
    for (const { deployment } of levels.slice(1)) await deployment.stop();
  }
}

/** The first round warms up: a process's first requests cost several times as much. */
async function runInTurns(
  { options, progress }: Context,
  name: string,
  turns: readonly Turn[],
): Promise<FlatLevel[]> {
  const levels = turns.map(({ of }) => ({ of, runs: [] as Run[] }));
  for (let round = 0; round <= options.repeats; round += 1) {
    for (const [index, { of, run }] of turns.entries()) {
      const found = await run();
      if (round > 0) levels[index]?.runs.push(found);
      progress.say(`flat ${name}, ${figure(of)}: ${figure(found.cpuSum)} µs an event`);
    }
  }
  return levels;
}

async function runOne(
  { options, progress }: Context,
  way: Way,
  subject: Subject,
  appIds: readonly string[],
): Promise<Run> {
  const { run } = await runThroughput({
    subject,
    way,
    appIds,
    seconds: options.seconds,
    warmUpSeconds,
    connections: options.connections ?? way.connections,
    threads: options.threads,
    progress,
  });
  return run;
}

/** The deployment with all of its events counted together: nobody else sends any. */
function wholeTable(deployment: Deployment): Subject {
  const stored = async () => {
    const [row] = await deployment.rows<{ events: number; ids: number }>(
      'SELECT toUInt32(count()) AS events, toUInt32(uniqExact(event_id)) AS ids FROM events',
    );
    return row ?? { ids: 0 };
  };
  return { ...deploymentSubject(deployment), stored, count: () => countAll(deployment) };
}

async function countAll({ rows }: Deployment): Promise<number> {
  const [row] = await rows<{ n: number }>('SELECT toUInt32(count()) AS n FROM events');
  return row?.n ?? 0;
}

/** Adds events, as if a service had stored them recently, until there are this many in total. */
async function fill(deployment: Deployment, events: number, progress: Progress): Promise<void> {
  const first = await countAll(deployment);
  const segmentBase = BigInt(Date.now() - hourMs) * 1000n + BigInt(first);
  for (let stored = first; stored < events; stored += fillRows) {
    await deployment.rows(fillStatement(stored, Math.min(fillRows, events - stored), segmentBase));
  }
  progress.say(`flat: ${events} events are stored`);
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
