// Every fault that a schedule may contain. Faults of one kind share a name, whichever process they affect.

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

/** The kinds of faults that rounds draw from, as far as this machine has the tools. */
export function faultKinds(tools: ReadonlySet<Tool>): string[] {
  return namesOf(randomFaults.filter(({ needs }) => needs === undefined || tools.has(needs)));
}

export const crashKinds: readonly string[] = namesOf(crashFaults);

/** The faults of one kind: one for each process that it can affect. */
export function faultsNamed(name: string): readonly Fault[] {
  const found = all.filter((fault) => fault.name === name);
  if (found.length === 0) throw new Error(`there is no fault ${JSON.stringify(name)}`);
  return found;
}
