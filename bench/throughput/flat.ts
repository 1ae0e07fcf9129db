// Does an event cost the same however much is stored, and however many environments there are? Deployments with more and more
// stored events stand side by side and take turns; so do growing numbers of environments of the first deployment.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Context } from '../context.js';
import { type Deployment, startDeployment } from '../deployment/deployment.js';
import { insertEvents } from '../deployment/made-events.js';
import { mergesEnded, numberOf } from '../deployment/stored.js';
import { deploymentSubject } from '../deployment/subject.js';
import { figure } from '../figures.js';
import type { Progress } from '../progress.js';
import type { Subject } from './measure.js';
import { loadOf, runThroughput } from './throughput.js';
import { type Level, levelsInTurns } from './turns.js';
import { wayNamed } from './ways.js';

export type FlatResult = {
  /** By stored events. */
  readonly single: readonly Level[];
  readonly bulk: readonly Level[];
  /** Single events, by the number of environments that take turns. */
  readonly environments: readonly Level[];
};

const fillRows = 500_000;
/** Rows of each made-up segment, as a service with 5000 events per second leaves them. Each segment has a marker. */
const rowsPerSegment = 1_250;
const hourMs = 3_600_000;
const filledAppId = '99999999';

export async function runFlat(context: Context): Promise<FlatResult> {
  const { options, progress, deployment: own } = context;
  const [first = 0, ...more] = options.flatEvents;
  const levels = [{ events: first, deployment: own }];
  try {
    for (const events of more) levels.push({ events, deployment: await startDeployment(options) });
    for (const { events, deployment } of levels) await fill(deployment, events, progress);
    await Promise.all(levels.map(({ deployment }) => mergesEnded(deployment)));
    // Otherwise the first commits would wait until the filled data is on the disk.
    await promisify(execFile)('sync');
    const turn = (name: string, of: number, subject: Subject, appIds: () => Promise<string[]>) => ({
      of,
      name: `flat ${name}, ${figure(of)}`,
      rounds: options.repeats,
      run: async () =>
        (await runThroughput({ ...loadOf(context, name), subject, appIds: await appIds() })).run,
    });
    const byEvents = (name: string) =>
      levels.map(({ events, deployment }) =>
        turn(name, events, deploymentSubject(deployment), () =>
          deployment.addEnvironments(1, wayNamed(name).limits),
        ),
      );
    const single = await levelsInTurns(byEvents('single'), progress);
    const bulk = await levelsInTurns(byEvents('bulk-500'), progress);
    const environments: ReturnType<typeof turn>[] = [];
    for (const of of options.flatEnvironments) {
      const appIds = await own.addEnvironments(of, 'default');
      environments.push(turn('single', of, wholeTable(own), async () => appIds));
    }
    return { single, bulk, environments: await levelsInTurns(environments, progress) };
  } finally {
    for (const { deployment } of levels.slice(1)) await deployment.stop();
  }
}

/** The deployment, all of whose events are counted together: nothing else sends any. */
export function wholeTable(deployment: Deployment): Subject {
  const count = () => numberOf(deployment, 'count()', 'events');
  const stored = async () => ({
    events: await count(),
    ids: await numberOf(deployment, 'uniqExact(event_id)', 'events'),
  });
  return { ...deploymentSubject(deployment), stored, count };
}

/** Adds events, as if a service had stored them recently, until there are this many in total. */
async function fill(deployment: Deployment, events: number, progress: Progress): Promise<void> {
  const first = await numberOf(deployment, 'count()', 'events');
  const segmentBase = BigInt(Date.now() - hourMs) * 1000n;
  for (let stored = first; stored < events; stored += fillRows) {
    await insertEvents(deployment, {
      count: Math.min(fillRows, events - stored),
      segment: `${segmentBase + BigInt(stored)} + intDiv(number, ${rowsPerSegment}) * ${rowsPerSegment}`,
      with: [`number + ${stored} AS n`],
      appId: `'${filledAppId}'`,
      event: "'Order Completed'",
      identity: "concat('user-', leftPad(toString(n % 200000), 6, '0'), '@example.com')",
      properties: `map('order_id', concat('order-', leftPad(toString(n), 9, '0')), 'amount', toString(n % 100000 / 100),
        'currency', ['EUR', 'USD', 'GBP', 'JPY'][1 + n % 4], 'items', toString(1 + n % 7))`,
    });
  }
  progress.say(`flat: ${events} events are stored`);
}
