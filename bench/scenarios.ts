// All scenarios that the command line takes, and what each measures.

import { deletionNames } from './deletion/deletions.js';
import { BenchError } from './failure.js';
import { peerWays, sluiceWays } from './throughput/ways.js';

type Scenario = { readonly name: string; readonly what: string };

const floors: readonly Scenario[] = [
  { name: 'engine', what: 'floor: the same rows into ClickHouse alone' },
  { name: 'redis-single', what: 'floor: the bytes and commands of single events into Redis alone' },
  { name: 'redis-bulk', what: 'floor: the bytes and commands of bulk requests into Redis alone' },
];

export const roundNames = [...sluiceWays, ...peerWays, ...floors].map(({ name }) => name);

export const scenarios: readonly Scenario[] = [
  ...sluiceWays,
  ...peerWays,
  ...floors,
  { name: 'curve', what: 'CPU of an event at 10, 30, 50, 70 and 100 % of the highest rate' },
  { name: 'half-load', what: 'latency, time until queryable, and memory, second by second at half load' },
  { name: 'backlog', what: 'ten minutes of events wait in Redis and drain while the load goes on' },
  { name: 'flat', what: 'CPU of an event by stored events and by environments' },
  { name: 'keys', what: 'CPU of a key that Redis has forgotten, by keys in the index' },
  { name: 'backfill', what: '3 million flights by the import program' },
  { name: 'producer', what: 'events by the library for servers, from one process' },
  { name: 'servers', what: 'CPU of an event with one, two and three Redis masters and ClickHouse servers' },
  { name: 'deletion-one', what: 'a deletion of one user, by stored events' },
  { name: 'deletion-bulk', what: 'a deletion of one percent of the users' },
  { name: 'deletion-beside', what: 'a deletion of one percent of the users under ingestion' },
  { name: 'deletion-many', what: 'a thousand deletions of one user each within a minute' },
  {
    name: 'desk',
    what: 'export, preview, submission and polling on a large table; cost of suppressed users',
  },
];

const floorNames = [...peerWays.filter(({ subject }) => subject.startsWith('uws')), ...floors].map(
  ({ name }) => name,
);
const peerNames = peerWays.map(({ name }) => name).filter((name) => !floorNames.includes(name));
/** `all` skips these: sessions of their own measure them on larger tables. */
const apart: readonly string[] = [...deletionNames.filter((name) => name !== 'deletion-beside'), 'desk'];

const groups: Readonly<Record<string, readonly string[]>> = {
  all: scenarios.map(({ name }) => name).filter((name) => !apart.includes(name)),
  ways: sluiceWays.map(({ name }) => name),
  floors: floorNames,
  peers: peerNames,
  deletion: deletionNames,
};

/** Resolves names and groups to scenarios, in the order in which they run. Throws BenchError for an unknown name. */
export function selectScenarios(names: readonly string[]): string[] {
  const wanted = new Set(names.flatMap((name) => groups[name] ?? [name]));
  for (const name of wanted) {
    if (!scenarios.some((scenario) => scenario.name === name)) {
      throw new BenchError(`there is no scenario ${name}: npm run bench lists them`);
    }
  }
  return scenarios.map(({ name }) => name).filter((name) => wanted.has(name));
}

export const scenariosUsage = [
  'Scenarios',
  ...scenarios.map(({ name, what }) => `  ${name.padEnd(22)} ${what}`),
  ...Object.entries(groups).map(([name, members]) => `  ${name.padEnd(22)} ${members.join(', ')}`),
].join('\n');
