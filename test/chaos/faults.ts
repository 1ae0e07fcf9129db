// Every fault that a schedule may contain. Faults of one kind have the same name for all processes.

import type { Layout } from './deployment.js';
import type { Fault } from './fault.js';
import { clickHouseFaults } from './faults-clickhouse.js';
import { clockFaults } from './faults-clocks.js';
import { crashFaults, emptiedAfterAnyCrash } from './faults-crashes.js';
import { diskFaults } from './faults-disks.js';
import { maskFaults } from './faults-masks.js';
import { moveOfShard } from './faults-moves.js';
import { networkFaults, networkFaultsOfThree } from './faults-network.js';
import { clusterFaults, nodeFaults } from './faults-nodes.js';
import { oldClickHouse, oldRedis } from './faults-old-copies.js';
import { powerFaults } from './faults-power.js';
import { processFaults, processFaultsOfThree } from './faults-processes.js';
import { redisFaults } from './faults-redis.js';
import type { Tool } from './tools.js';

const faultsOfOne: readonly Fault[] = [
  ...processFaults,
  ...networkFaults,
  ...redisFaults,
  ...clickHouseFaults,
  ...clockFaults,
  ...powerFaults,
  ...maskFaults(['clickhouse']),
  oldRedis,
  oldClickHouse,
  emptiedAfterAnyCrash,
];

/** The faults from which random rounds draw, by layout. The other layouts leave out faults that concern single servers. */
const randomFaults: Readonly<Record<Layout, readonly Fault[]>> = {
  one: faultsOfOne,
  three: [
    ...processFaultsOfThree,
    ...networkFaultsOfThree,
    ...maskFaults(['clickhouse-1', 'clickhouse-2', 'clickhouse-3']),
    moveOfShard,
  ],
  disks: diskFaults,
  nodes: nodeFaults,
  cluster: clusterFaults,
};
const all: Readonly<Record<Layout, readonly Fault[]>> = {
  ...randomFaults,
  one: [...faultsOfOne, ...crashFaults],
};

function namesOf(faults: readonly Fault[]): string[] {
  return [...new Set(faults.map(({ name }) => name))];
}

/** The kinds of faults that rounds can draw with the tools of this machine. */
export function faultKinds(tools: ReadonlySet<Tool>, layout: Layout = 'one'): string[] {
  return namesOf(randomFaults[layout].filter(({ needs }) => needs === undefined || tools.has(needs)));
}

export const crashKinds: readonly string[] = namesOf(crashFaults);

/** The faults of one kind: one for each process that it can affect. */
export function faultsNamed(name: string, layout: Layout = 'one'): readonly Fault[] {
  const found = all[layout].filter((fault) => fault.name === name);
  if (found.length === 0) throw new Error(`there is no fault ${JSON.stringify(name)}`);
  return found;
}
