// One measured run: warm-up, clock on, load, until ClickHouse holds everything, clock off. CPU time is counted
// over all of it, the store's share included, and divided by the events.

import type { Redis } from 'ioredis';
import { type CommandStats, commandStatsBetween, countRewrites, readCommandStats } from './command-stats.js';
import { type Deployment, type ProcessName, processNames } from './deployment.js';
import { machineMicroseconds, othersShare } from './processes.js';
import { assertStored, mergesEnded, untilStored } from './stored.js';

export type Run = {
  readonly events: number;
  readonly seconds: number;
  readonly eventsPerSecond: number;
  readonly requestsPerSecond: number;
  /** µs of CPU an event, of each kind of process and of the four together. */
  readonly cpu: Readonly<Record<ProcessName, number>>;
  readonly cpuSum: number;
  /** µs of CPU an event of the load generator, which takes them from the service. */
  readonly generatorCpu: number;
  /** Of the machine's CPU time, what neither the deployment nor the generator used: above 0.1 the run is noisy. */
  readonly othersShare: number;
  /** From the last acknowledgement until ClickHouse held every event. */
  readonly storedAfterMs: number;
  readonly redis: {
    /** Script calls, of which each commit is one, and the µs of them an event. */
    readonly evalshaCalls: number;
    readonly evalshaCpu: number;
    /** Rewrites of the append-only file that began meanwhile; their CPU is in Redis's. */
    readonly rewrites: number;
    readonly commands: CommandStats;
  };
};

export type Loaded = { readonly seconds: number; readonly generatorCpu: number };

export type MeasureOptions<Result extends Loaded> = {
  readonly deployment: Deployment;
  readonly redis: Redis;
  readonly appId: string;
  /** Events that the environment held before. */
  readonly eventsBefore: number;
  readonly requests: number;
  readonly events: number;
  /** Sends all of it; settles when the last request is acknowledged. */
  readonly load: () => Promise<Result>;
};

/** Settles with the figures and what `load` returned; rejects when something was lost, doubled or refused. */
export async function measure<Result extends Loaded>(
  options: MeasureOptions<Result>,
): Promise<{ run: Run; loaded: Result }> {
  const { deployment, redis, appId, events, requests } = options;
  await mergesEnded(deployment);
  const rewritesBefore = await countRewrites(redis);
  const commandsBefore = await readCommandStats(redis);
  const cpuBefore = deployment.cpu();
  const ownBefore = process.cpuUsage();
  const machineBefore = machineMicroseconds();

  const loaded = await options.load();
  const acknowledgedAt = performance.now();
  await untilStored(deployment, appId, options.eventsBefore + events);
  const storedAfterMs = performance.now() - acknowledgedAt;

  const machineAfter = machineMicroseconds();
  const own = process.cpuUsage(ownBefore);
  const cpuAfter = deployment.cpu();
  const commands = commandStatsBetween(commandsBefore, await readCommandStats(redis));
  await assertStored(deployment, appId, options.eventsBefore + events);
  const rewrites = (await countRewrites(redis)) - rewritesBefore;
  const used = (name: ProcessName) => ((cpuAfter[name] ?? 0) - (cpuBefore[name] ?? 0)) / events;
  const cpu = Object.fromEntries(processNames.map((name) => [name, used(name)])) as Run['cpu'];
  const cpuSum = processNames.reduce((sum, name) => sum + cpu[name], 0);
  const evalsha = commands.evalsha ?? { calls: 0, microseconds: 0 };
  const run: Run = {
    events,
    seconds: loaded.seconds,
    eventsPerSecond: events / loaded.seconds,
    requestsPerSecond: requests / loaded.seconds,
    cpu,
    cpuSum,
    generatorCpu: loaded.generatorCpu / events,
    othersShare: othersShare(machineBefore, machineAfter, cpuSum * events + own.user + own.system),
    storedAfterMs,
    redis: { evalshaCalls: evalsha.calls, evalshaCpu: evalsha.microseconds / events, rewrites, commands },
  };
  return { run, loaded };
}
