// Does an event cost the same with one, two and three Redis masters and ClickHouse servers? Three deployments take turns at the same rates.
// Everything else is equal: shards, API process, worker, environments, and connections by ports. What the processes use while nothing is
// sent is measured separately.

import { setTimeout as pause } from 'node:timers/promises';
import type { Context } from '../context.js';
import { perRecord, startMeter } from '../deployment/meter.js';
import { type Level, levelsAtRate, withEnvironments } from './turns.js';
import { wayNamed } from './ways.js';

const numbers = [1, 2, 3];
/** Divides evenly over two masters and over three. */
const shards = 12;
const environments = 60;
const idleSeconds = 20;
/** Requests per second that two cores handle easily, beside the generator and two more deployments. */
const rates = { single: 1_500, 'bulk-500': 30 };

export const serversDeployments = () =>
  numbers.map((servers) => ({ servers, env: { SHARDS: String(shards) } }));

export async function runServers(context: Context) {
  const { options } = context;
  const found = await withEnvironments(context, numbers, environments);
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
    const levels = await levelsAtRate(context, found, name, rate, (of) => `servers ${name}, ${of} of each`);
    ways.push({ name, eventsPerSecond: rate * (wayNamed(name).records.events ?? 0), levels });
  }
  return { shards, ways, idle };
}
