// Does an event cost the same regardless of how much is stored and how many environments there are? Deployments with different numbers of
// stored events take turns; so do different numbers of environments in the first deployment.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Context } from '../context.js';
import type { Deployment } from '../deployment/deployment.js';
import { insertEvents } from '../deployment/made-events.js';
import { mergesEnded, numberOf } from '../deployment/stored.js';
import { figure } from '../figures.js';
import { runWay, type ThroughputOptions } from './throughput.js';
import { levelsInTurns, wholeTable } from './turns.js';
import { ofEnvironment } from './ways.js';

/** How many rows each generated segment has: a quarter of a second of 5000 events per second. Each segment has a marker. */
const rowsPerSegment = 1_250;
const hourMs = 3_600_000;
const filledAppId = '99999999';

/** Levels by the number of stored events, and for single events also by the number of environments, which requests use in turn. */
export async function runFlat(context: Context) {
  const { options, progress, deployment: first, deployments } = context;
  for (const [index, deployment] of deployments.entries()) {
    const events = options.flatEvents[index] ?? 0;
    await fill(deployment, events);
    progress.say(`flat: ${events} events are stored`);
  }
  await Promise.all(deployments.map(mergesEnded));
  // Syncs, since otherwise the first commits would wait until the filled data is on the disk.
  await promisify(execFile)('sync');
  const turn = (way: string, of = 0, deployment = first, more?: Partial<ThroughputOptions>) => ({
    of,
    name: `flat ${way}, ${figure(of)}`,
    rounds: options.repeats,
    run: () => runWay({ ...context, deployment }, way, more),
  });
  const byEvents = (way: string) =>
    levelsInTurns(
      deployments.map((deployment, index) => turn(way, options.flatEvents[index], deployment)),
      progress,
    );
  const [single, bulk] = [await byEvents('single'), await byEvents('bulk-500')];
  const environments: ReturnType<typeof turn>[] = [];
  for (const of of options.flatEnvironments) {
    // Many environments keep their limits, since a load that so many share reaches none, and lifting them one by one takes minutes.
    const appIds = await first.addEnvironments(of, of < 1_000 ? ofEnvironment : {});
    environments.push(turn('single', of, first, { subject: wholeTable(first), appIds }));
  }
  return { single, bulk, environments: await levelsInTurns(environments, progress) };
}

/** Adds events until there are this many in total, as if a service had stored them recently. */
async function fill(deployment: Deployment, events: number): Promise<void> {
  const segmentBase = BigInt(Date.now() - hourMs) * 1000n;
  await insertEvents(deployment, await numberOf(deployment, 'count()', 'events'), events, (from) => ({
    segment: `${segmentBase + BigInt(from)} + intDiv(number, ${rowsPerSegment}) * ${rowsPerSegment}`,
    appId: `'${filledAppId}'`,
    event: "'Order Completed'",
    identity: "concat('user-', leftPad(toString(n % 200000), 6, '0'), '@example.com')",
    properties: `map('order_id', concat('order-', leftPad(toString(n), 9, '0')), 'amount', toString(n % 100000 / 100),
      'currency', ['EUR', 'USD', 'GBP', 'JPY'][1 + n % 4], 'items', toString(1 + n % 7))`,
  }));
}
