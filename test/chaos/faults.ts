// Every fault that a schedule may contain. Faults of one kind have one name, whatever process they take.

import type { Fault } from './fault.js';
import { clickHouseFaults } from './faults-clickhouse.js';
import { clockFaults } from './faults-clocks.js';
import { crashFaults, emptiedAfterAnyCrash } from './faults-crashes.js';
import { networkFaults } from './faults-network.js';
import { processFaults } from './faults-processes.js';
import { redisFaults } from './faults-redis.js';
import type { Tool } from './tools.js';

const randomFaults: readonly Fault[] = [
  ...processFaults,
  ...networkFaults,
  ...redisFaults,
  ...clickHouseFaults,
  ...clockFaults,
  emptiedAfterAnyCrash,
];

const all = [...randomFaults, ...crashFaults];

function namesOf(faults: readonly Fault[]): string[] {
  return [...new Set(faults.map(({ name }) => name))];
}

/** The kinds of faults that rounds draw from, as far as the tools that are here can do them. */
export function faultKinds(tools: ReadonlySet<Tool>): string[] {
  return namesOf(randomFaults.filter(({ needs }) => needs === undefined || tools.has(needs)));
}

export const crashKinds: readonly string[] = namesOf(crashFaults);

/** The faults of a kind, one for each process that it may take. */
export function faultsNamed(name: string): readonly Fault[] {
  const found = all.filter((fault) => fault.name === name);
  if (found.length === 0) throw new Error(`there is no fault ${JSON.stringify(name)}`);
  return found;
}
