// The options of a session, the same for all scenarios; each takes of them what concerns it.

import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { BenchError } from './failure.js';

export type Options = {
  /** Length of one run. */
  readonly seconds: number;
  /** Runs of what targets are about; the median is reported. */
  readonly repeats: number;
  /** Instead of each scenario's own number. */
  readonly connections: number | undefined;
  /** Requests a second. */
  readonly rate: number | undefined;
  /** Threads of the generator. */
  readonly threads: number;
  /** Given: the deployment runs already. */
  readonly elsewhere:
    | {
        readonly url: string;
        readonly appId: string;
        readonly clickhouseUrl: string;
        readonly database: string;
      }
    | undefined;
  readonly env: NodeJS.ProcessEnv;
  readonly profileDir: string | undefined;
  readonly soakMinutes: number;
  readonly flatEvents: readonly number[];
  readonly flatEnvironments: readonly number[];
  /** How many keys the index has. */
  readonly keysEvents: readonly number[];
  readonly backlogEvents: number;
  readonly flights: number;
  readonly flightsBatch: number;
  readonly flightsKeys: boolean;
  readonly producerEvents: number;
  readonly deletionEvents: number;
  /** Scenarios of `all`, or undefined for every one. */
  readonly only: readonly string[] | undefined;
  /** Where the results go, without an ending; undefined: to their usual place. */
  readonly out: string | undefined;
  /** Whether nothing was changed that the results depend on. */
  readonly standard: boolean;
  /** As given on the command line. */
  readonly text: string;
};

/** Cores that the deployment keeps for itself before the generator takes a second thread. */
const coresOfDeployment = 4;
const threadsMax = 4;

export const optionsUsage = `Options
  --duration N         seconds of one run (4)
  --repeats N          runs of what targets are about, of which the median is reported (3)
  --connections N      instead of each scenario's own number
  --rate N             requests a second at a fixed rate, instead of as fast as they are answered; of latency,
                       soak and backlog: the rate that they are measured at
  --threads N          threads of the load generator (1, more from 6 cores)
  --only NAMES         of all: these scenarios, with commas between
  --out PATH           writes the results to PATH.json and PATH.md
  --env NAME=VALUE     environment of the API and the worker; may be given again
  --cpu-prof DIR       writes V8 CPU profiles of the API and the worker into DIR
  --soak-minutes N     (30; in all 2)
  --flat-events LIST   millions of stored events, with commas between (1,10,50; in all 1,10)
  --flat-environments LIST   (10,1000,10000)
  --backlog-events N   (3000000)
  --keys-events LIST   millions of keys in the index (10,100; in all 10)
  --producer-events N  (1000000)
  --deletion-events N  stored beside the ingestion, of a tenth as many users (1000000)
  --flights N          the first N of the file (3000000); --flights-batch N events a request (1000);
                       --flights-keys: with idempotency keys
For backfill and producer, a deployment that runs already:
  --url URL            of its API, with --app-id and --clickhouse-url
  --app-id APP_ID      an environment for all load, with its bulk limits off:
                       npm run admin -- environments set APP_ID --limit bulk_app=none --limit bulk_identity=none
  --clickhouse-url URL
  --database NAME      (sluice)`;

/** Reads the options of a command line. Throws BenchError, which names the option that is wrong. */
export function readOptions(args: readonly string[], all: boolean): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      duration: { type: 'string', default: '4' },
      repeats: { type: 'string', default: '3' },
      connections: { type: 'string' },
      rate: { type: 'string' },
      threads: { type: 'string' },
      only: { type: 'string' },
      out: { type: 'string' },
      url: { type: 'string' },
      'app-id': { type: 'string' },
      'clickhouse-url': { type: 'string' },
      database: { type: 'string', default: 'sluice' },
      env: { type: 'string', multiple: true, default: [] },
      'cpu-prof': { type: 'string' },
      'soak-minutes': { type: 'string', default: all ? '2' : '30' },
      'flat-events': { type: 'string', default: all ? '1,10' : '1,10,50' },
      'flat-environments': { type: 'string', default: '10,1000,10000' },
      'keys-events': { type: 'string', default: all ? '10' : '10,100' },
      'backlog-events': { type: 'string', default: '3000000' },
      'producer-events': { type: 'string', default: '1000000' },
      'deletion-events': { type: 'string', default: '1000000' },
      flights: { type: 'string', default: '3000000' },
      'flights-batch': { type: 'string', default: '1000' },
      'flights-keys': { type: 'boolean', default: false },
    },
  });
  if (values.only !== undefined && !all) throw new BenchError('--only belongs to all');
  return {
    seconds: positive('--duration', values.duration),
    repeats: positive('--repeats', values.repeats),
    connections: optional('--connections', values.connections),
    rate: optional('--rate', values.rate),
    threads: optional('--threads', values.threads) ?? standardThreads(),
    elsewhere: readElsewhere(values.url, values['app-id'], values['clickhouse-url'], values.database),
    env: readEnv(values.env),
    profileDir: values['cpu-prof'],
    soakMinutes: positive('--soak-minutes', values['soak-minutes']),
    flatEvents: list('--flat-events', values['flat-events']).map((millions) => millions * 1e6),
    flatEnvironments: list('--flat-environments', values['flat-environments']),
    keysEvents: list('--keys-events', values['keys-events']).map((millions) => millions * 1e6),
    backlogEvents: positive('--backlog-events', values['backlog-events']),
    flights: positive('--flights', values.flights),
    flightsBatch: positive('--flights-batch', values['flights-batch']),
    flightsKeys: values['flights-keys'],
    producerEvents: positive('--producer-events', values['producer-events']),
    deletionEvents: positive('--deletion-events', values['deletion-events']),
    only: values.only?.split(','),
    out: values.out,
    standard: args.every((arg, i) => arg === '--out' || args[i - 1] === '--out'),
    text: args.join(' '),
  };
}

/** Throws BenchError, which names the option, unless the text is a whole number above 0. */
export function positive(name: string, text: string): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < 1) {
    throw new BenchError(`${name} must be a whole number above 0, not ${JSON.stringify(text)}`);
  }
  return number;
}

function optional(name: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : positive(name, text);
}

function list(name: string, text: string): number[] {
  return text.split(',').map((part) => positive(name, part));
}

function readEnv(pairs: readonly string[]): NodeJS.ProcessEnv {
  return Object.fromEntries(
    pairs.map((pair) => {
      const equals = pair.indexOf('=');
      if (equals < 1) throw new BenchError(`--env takes NAME=VALUE, not ${JSON.stringify(pair)}`);
      return [pair.slice(0, equals), pair.slice(equals + 1)];
    }),
  );
}

function readElsewhere(
  url: string | undefined,
  appId: string | undefined,
  clickhouseUrl: string | undefined,
  database: string,
): Options['elsewhere'] {
  if (url === undefined && appId === undefined && clickhouseUrl === undefined) return undefined;
  if (url === undefined || appId === undefined || clickhouseUrl === undefined) {
    throw new BenchError('--url, --app-id and --clickhouse-url belong together');
  }
  for (const [name, value] of [
    ['--url', url],
    ['--clickhouse-url', clickhouseUrl],
  ] as const) {
    if (!/^https?:/.test(value) || !URL.canParse(value)) {
      throw new BenchError(`${name} must be a URL that begins with http:// or https://`);
    }
  }
  return { url, appId, clickhouseUrl, database };
}

function standardThreads(): number {
  return Math.max(1, Math.min(threadsMax, availableParallelism() - coresOfDeployment));
}
