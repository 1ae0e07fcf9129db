// The names of all scenarios: what can be given on the command line, what each is about, and where it can run.

import { BenchError } from './failure.js';
import { peerWays, sluiceWays } from './throughput/ways.js';

export type Scenario = {
  readonly name: string;
  readonly what: string;
  /** Whether it can be measured on a deployment that runs already. */
  readonly elsewhere: boolean;
};

const floors: readonly Scenario[] = [
  { name: 'engine', what: 'floor: the same rows into ClickHouse, through HTTP', elsewhere: false },
  { name: 'engine-native', what: 'floor: the same by the native protocol', elsewhere: false },
  { name: 'redis-single', what: 'floor: the same bytes into Redis, an event a command', elsewhere: false },
  { name: 'redis-bulk', what: 'floor: the same bytes into Redis, 500 events a command', elsewhere: false },
];

export const floorNames = floors.map(({ name }) => name);

const others: readonly Scenario[] = [
  {
    name: 'connections',
    what: 'single events at 16, 64 and 256 connections by wrk: events and CPU of a commit',
    elsewhere: false,
  },
  {
    name: 'latency',
    what: 'acknowledgement and until it can be queried, at 30, 50 and 70 % of the highest rate',
    elsewhere: false,
  },
  { name: 'segments', what: "a backlog's bytes in Redis", elsewhere: false },
  { name: 'backlog', what: 'ten minutes of events drain while as many come', elsewhere: false },
  { name: 'flat', what: 'cost of an event by stored events and by environments', elsewhere: false },
  { name: 'keys', what: 'cost of a key that Redis has forgotten, by keys in the index', elsewhere: false },
  { name: 'soak', what: 'memory of each process under a steady load', elsewhere: false },
  { name: 'backfill', what: '3 million flights in bulk, compared with their file', elsewhere: true },
  { name: 'producer', what: 'events by the library for servers, from one process', elsewhere: true },
  { name: 'deletion-beside', what: 'a deletion of many users beside ingestion', elsewhere: false },
];

const ofWays = (ways: typeof sluiceWays, elsewhere: boolean): Scenario[] =>
  ways.map(({ name, what }) => ({ name, what, elsewhere }));

export const scenarios: readonly Scenario[] = [
  ...ofWays(sluiceWays, false),
  ...ofWays(peerWays, false),
  ...floors,
  ...others,
];

const httpFloorNames = peerWays.filter(({ subject }) => subject.startsWith('uws')).map(({ name }) => name);

const groups: Readonly<Record<string, readonly string[]>> = {
  ways: sluiceWays.map(({ name }) => name),
  floors: [...httpFloorNames, ...floorNames],
  peers: peerWays.map(({ name }) => name).filter((name) => !httpFloorNames.includes(name)),
};

/**
 * The scenarios of names and groups, in the order in which they run. Throws BenchError for a name that there is
 * not, and for one that cannot run elsewhere when it should.
 */
export function selectScenarios(names: readonly string[], elsewhere: boolean): string[] {
  const wanted = new Set<string>();
  for (const name of names) {
    const members = groups[name] ?? [name];
    for (const member of members) {
      if (!scenarios.some((scenario) => scenario.name === member)) {
        throw new BenchError(`there is no scenario ${member}: npm run bench lists them`);
      }
      wanted.add(member);
    }
  }
  const selected = scenarios.filter(({ name }) => wanted.has(name));
  const here = selected.filter((scenario) => elsewhere && !scenario.elsewhere);
  if (here.length > 0) {
    const words = here.map(({ name }) => name).join(', ');
    throw new BenchError(`not possible with --url, since it needs processes of the bench: ${words}`);
  }
  return selected.map(({ name }) => name);
}

/** What `all` is. */
export function allScenarios(elsewhere: boolean): string[] {
  return scenarios.filter((scenario) => !elsewhere || scenario.elsewhere).map(({ name }) => name);
}

export const scenariosUsage = [
  'Scenarios',
  ...scenarios.map(({ name, what }) => `  ${name.padEnd(22)} ${what}`),
  ...Object.entries(groups).map(([name, members]) => `  ${name.padEnd(22)} ${members.join(', ')}`),
].join('\n');
