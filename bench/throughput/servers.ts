// Does an event cost the same with one, two and three Redis masters and ClickHouse servers? Three deployments stand side by
// side and take turns at the same rates. All else is the same: shards, API process, worker, environments, and that
// everybody reaches everybody by ports.

import { setTimeout as pause } from 'node:timers/promises';
import type { Context } from '../context.js';
import type { CpuTimes } from '../deployment/deployment.js';
import { type Deployment, startDeployment } from '../deployment/deployment.js';
import { perRecord, startMeter } from '../deployment/meter.js';
import { type FlatLevel, wholeTable } from './flat.js';
import { describeRun, runThroughput } from './throughput.js';
import { wayNamed } from './ways.js';

export type ServersResult = {
  readonly shards: number;
  readonly ways: readonly ServersWay[];
  /** Of each number of servers: ms of CPU a second while nothing is sent. */
  readonly idle: readonly { readonly of: number; readonly cpu: CpuTimes }[];
};

/** By the number of masters and servers. */
export type ServersWay = {
  readonly name: string;
  readonly eventsPerSecond: number;
  readonly levels: readonly FlatLevel[];
};

const numbers = [1, 2, 3];
/** As many on each master of two, and nearly so of three. */
const shards = 12;
const environments = 60;
const idleSeconds = 5;
const warmUpSeconds = 1;
/** Requests a second that two cores carry beside the generator, with a good part of them left free. */
const rates = { single: 5_000, 'bulk-500': 60 } as const;

export async function runServers({ options, progress }: Omit<Context, 'deployment' | 'redis'>) {
  const deployments: Deployment[] = [];
  const env = { SHARDS: String(shards), ...options.env };
  try {
    for (const servers of numbers) deployments.push(await startDeployment({ ...options, servers, env }));
    const of = (index: number) => numbers[index] ?? 0;
    const readers = deployments.map((deployment) => startMeter(() => deployment.cpu()));
    await pause(idleSeconds * 1000);
    const idle = readers.map((read, index) => {
      const { used, seconds } = read();
      return { of: of(index), cpu: perRecord(used, seconds * 1000) };
    });
    const appIds: string[][] = [];
    for (const deployment of deployments) appIds.push(await deployment.addEnvironments(environments, 'none'));
    const ways: ServersWay[] = [];
    for (const [name, requests] of Object.entries(rates)) {
      const way = wayNamed(name);
      const rate = options.rate ?? requests;
      const levels = deployments.map((_, index) => ({
        of: of(index),
        runs: [] as FlatLevel['runs'][number][],
      }));
      // The first round only warms up.
      for (let round = 0; round <= options.repeats; round += 1) {
        for (const [index, deployment] of deployments.entries()) {
          const { run } = await runThroughput({
            subject: wholeTable(deployment),
            way,
            appIds: appIds[index] ?? [],
            seconds: options.seconds,
            warmUpSeconds,
            connections: way.connections,
            threads: options.threads,
            rate,
            progress,
          });
          if (round > 0) levels[index]?.runs.push(run);
          progress.say(`servers ${name}, ${of(index)} of each: ${describeRun(run)}`);
        }
      }
      ways.push({ name, eventsPerSecond: rate * (way.records.events ?? 0), levels });
    }
    return { shards, ways, idle } satisfies ServersResult;
  } finally {
    for (const deployment of deployments) await deployment.stop();
  }
}
