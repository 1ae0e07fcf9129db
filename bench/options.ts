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
  readonly env: NodeJS.ProcessEnv;
  readonly profileDir: string | undefined;
  /** Of the run at half load. */
  readonly minutes: number;
  readonly flatEvents: readonly number[];
  readonly flatEnvironments: readonly number[];
  /** How many keys the index has. */
  readonly keysEvents: readonly number[];
  readonly backlogEvents: number;
  readonly producerEvents: number;
  readonly deletionEvents: number;
  readonly deletionRequests: number;
  /** Of the user who is exported. */
  readonly deskEvents: number;
  /** Scenarios of `all`, or undefined for every one. */
  readonly only: readonly string[] | undefined;
  /** Where the results go, without an ending; undefined: to their usual place. */
  readonly out: string | undefined;
  /** Whether nothing was changed that the results depend on. */
  readonly standard: boolean;
};

/** Cores that the deployment keeps for itself before the generator takes a second thread. */
const coresOfDeployment = 4;
const threadsMax = 4;

export const optionsUsage = `Options
  --duration N         seconds of one run (4)
  --repeats N          runs of what targets are about, of which the median is reported (3)
  --connections N      instead of each scenario's own number
  --rate N             requests a second at a fixed rate, instead of as fast as they are answered; of half-load, backlog
                       and deletion-beside: the rate that they are measured at
  --threads N          threads of the load generator (1, more from 6 cores)
  --only NAMES         of all: these scenarios, with commas between
  --out PATH           writes the results to PATH.json and PATH.md
  --env NAME=VALUE     environment of the API and the worker; may be given again
  --cpu-prof DIR       writes V8 CPU profiles of the API and the worker into DIR
  --minutes N          of half-load (30; in all 5)
  --flat-events LIST   millions of stored events, with commas between (1,10,50; in all 1,10)
  --flat-environments LIST   (10,1000,10000)
  --backlog-events N   (3000000)
  --keys-events LIST   millions of keys in the index (10,100; in all 10)
  --producer-events N  (1000000)
  --deletion-events N  of a tenth as many users (10000000; in all 1000000); --deletion-requests N (1000)
  --desk-events N      of the user who is exported (10000000)`;

/** Reads the options of a command line. Throws BenchError, which names the option that is wrong. */
export function readOptions(args: readonly string[], all: boolean): Options {
  const text = (standard: string) => ({ type: 'string', default: standard }) as const;
  const maybe = { type: 'string' } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      duration: text('4'),
      repeats: text('3'),
      connections: maybe,
      rate: maybe,
      threads: text(String(Math.max(1, Math.min(threadsMax, availableParallelism() - coresOfDeployment)))),
      only: maybe,
      out: maybe,
      env: { type: 'string', multiple: true, default: [] },
      'cpu-prof': maybe,
      minutes: text(all ? '5' : '30'),
      'flat-events': text(all ? '1,10' : '1,10,50'),
      'flat-environments': text('10,1000,10000'),
      'keys-events': text(all ? '10' : '10,100'),
      'backlog-events': text('3000000'),
      'producer-events': text('1000000'),
      'deletion-events': text(all ? '1000000' : '10000000'),
      'deletion-requests': text('1000'),
      'desk-events': text('10000000'),
    },
  });
  if (values.only !== undefined && !all) throw new BenchError('--only belongs to all');
  type Name = keyof typeof values;
  const whole = (name: Name) => positive(`--${name}`, String(values[name]));
  const list = (name: Name) =>
    String(values[name])
      .split(',')
      .map((part) => positive(`--${name}`, part));
  const millions = (name: Name) => list(name).map((number) => number * 1e6);
  return {
    seconds: whole('duration'),
    repeats: whole('repeats'),
    connections: optional('--connections', values.connections),
    rate: optional('--rate', values.rate),
    threads: whole('threads'),
    env: readEnv(values.env),
    profileDir: values['cpu-prof'],
    minutes: whole('minutes'),
    flatEvents: millions('flat-events'),
    flatEnvironments: list('flat-environments'),
    keysEvents: millions('keys-events'),
    backlogEvents: whole('backlog-events'),
    producerEvents: whole('producer-events'),
    deletionEvents: whole('deletion-events'),
    deletionRequests: whole('deletion-requests'),
    deskEvents: whole('desk-events'),
    only: values.only?.split(','),
    out: values.out,
    standard: args.every((arg, i) => arg === '--out' || args[i - 1] === '--out'),
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

export function optional(name: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : positive(name, text);
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
