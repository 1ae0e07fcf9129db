// Does an event cost the same with one, two and three Redis masters and ClickHouse servers? Three deployments take turns at the same rates.
// Everything else is equal: shards, API process, worker, environments, and connections by ports. What the processes use while nothing is
// sent is measured separately.

import { setTimeout as pause } from 'node:timers/promises';
import type { Context } from '../context.js';
import { type Deployment, startDeployment } from '../deployment/deployment.js';
import { perRecord, startMeter } from '../deployment/meter.js';
import { describeMachine } from '../machine.js';
import { wholeTable } from './flat.js';
import { runWay } from './throughput.js';
import { type Level, levelsInTurns } from './turns.js';
import { wayNamed } from './ways.js';

export type ServersResult = Awaited<ReturnType<typeof runServers>>['servers'];

const numbers = [1, 2, 3];
/** Divides evenly over two masters and over three. */
const shards = 12;
const environments = 60;
const idleSeconds = 20;
/** More rounds than usual, so that outliers do not decide. */
const moreRounds = 3;
/** Requests per second that two cores handle easily, beside the generator and two more deployments. */
const rates = { single: 1_500, 'bulk-500': 30 };

export async function runServers(context: Pick<Context, 'options' | 'progress'>) {
  const { options, progress } = context;
  const found: { of: number; deployment: Deployment; appIds: string[] }[] = [];
  const env = { SHARDS: String(shards), ...options.env };
  try {
    for (const of of numbers) {
      const deployment = await startDeployment({ ...options, servers: of, env });
      found.push({ of, deployment, appIds: await deployment.addEnvironments(environments, 'none') });
    }
    const readers = found.map(({ of, deployment }) => ({ of, read: startMeter(deployment.cpu) }));
    await pause(idleSeconds * 1_000);
    /** For each number of servers: ms of CPU per second while nothing is sent. */
    const idle = readers.map(({ of, read }) => {
      const { used, seconds } = read();
      return { of, cpu: perRecord(used, seconds * 1_000) };
    });
    /** For each way, levels by the number of masters and servers. */
    const ways: { name: string; eventsPerSecond: number; levels: readonly Level[] }[] = [];
    for (const [name, usual] of Object.entries(rates)) {
      const rate = options.rate ?? usual;
      const turns = found.map(({ of, deployment, appIds }) => ({
        of,
        name: `servers ${name}, ${of} of each`,
        rounds: moreRounds * options.repeats,
        run: () =>
          runWay({ ...context, deployment }, name, { rate, subject: wholeTable(deployment), appIds }),
      }));
      const eventsPerSecond = rate * (wayNamed(name).records.events ?? 0);
      ways.push({ name, eventsPerSecond, levels: await levelsInTurns(turns, progress) });
    }
    return {
      machine: await describeMachine(found[0]?.deployment.sluice),
      servers: { shards, ways, idle },
    };
  } finally {
    for (const { deployment } of found) await deployment.stop();
  }
}
