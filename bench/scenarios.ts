// All scenarios of the command line, and what each measures.

import { deletionNames } from './deletion/deletions.js';
import { BenchError } from './failure.js';
import { engineFloor, peerWays, sluiceWays } from './throughput/ways.js';

const ways: readonly { readonly name: string; readonly what: string }[] = [
  ...sluiceWays,
  ...peerWays,
  engineFloor,
];
export const roundNames = ways.map(({ name }) => name);

const scenarios: Readonly<Record<string, string>> = {
  ...Object.fromEntries(ways.map(({ name, what }) => [name, what])),
  curve: 'CPU of an event at 10, 30, 50, 70 and 100 % of the highest rate',
  'half-load': 'latency, time until queryable, and memory, second by second at half load',
  backlog: 'ten minutes of events wait in Redis and drain while the load goes on',
  flat: 'CPU of an event by stored events and by environments',
  keys: 'CPU of events without keys, with new keys and with keys that Redis has forgotten, by keys in the index',
  backfill: '3 million flights by the import program',
  producer: 'events by the library for servers, from one process',
  servers: 'CPU of an event with one, two and three Redis masters and ClickHouse servers',
  replicas:
    'cost and latency of an event that none, one or two replicas of Redis must have on disk; twenty take-overs',
  'deletion-one': 'a deletion of one user, by stored events',
  'deletion-bulk': 'a deletion of one percent of the users',
  'deletion-beside': 'a deletion of one percent of the users under ingestion',
  'deletion-many': 'a thousand deletions of one user each within a minute',
  stream: 'events beside a deletion request every ten seconds, in ever larger tables',
  desk: 'export, preview, submission and polling on a large table; cost of suppressed users',
};
const names = Object.keys(scenarios);
/** `all` leaves these out, since each has its own session. */
const apart: readonly string[] = ['keys', 'servers', 'replicas', ...deletionNames, 'stream', 'desk'];

const groups: Readonly<Record<string, readonly string[]>> = {
  all: names.filter((name) => !apart.includes(name)),
  ways: sluiceWays.map(({ name }) => name),
  floors: roundNames.filter((name) => /^(uws|engine)/.test(name)),
  peers: roundNames.filter((name) => name.startsWith('fastify')),
  deletion: deletionNames,
};

/** Resolves names and groups to scenarios, in the order in which these run. Throws BenchError for an unknown name. */
export function selectScenarios(given: readonly string[]): string[] {
  const wanted = new Set(given.flatMap((name) => groups[name] ?? [name]));
  for (const name of wanted) {
    if (!names.includes(name)) throw new BenchError(`there is no scenario ${name}: npm run bench lists them`);
  }
  return names.filter((name) => wanted.has(name));
}

export const scenariosUsage = [
  'Scenarios',
  ...Object.entries(scenarios).map(([name, what]) => `  ${name.padEnd(22)} ${what}`),
  ...Object.entries(groups).map(([name, members]) => `  ${name.padEnd(22)} ${members.join(', ')}`),
].join('\n');
