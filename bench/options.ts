// Options of the command line. One table states name, value, meaning and default of each; parsing and the usage text both
// come from it. Here are the options of a session; outside/options.ts has those of a load on a running deployment.

import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { BenchError } from './failure.js';

/** A flag has no `value`. */
type Option = {
  readonly type: 'string' | 'boolean';
  readonly multiple?: true;
  readonly value?: string;
  readonly help: string;
  readonly standard?: string;
};

/** Declares an option that takes a value. */
export function option(value: string, help: string, standard?: string) {
  return { type: 'string', value, help, ...(standard && { standard }) } as const;
}

export function usageOf(title: string, table: Readonly<Record<string, Option>>): string {
  const indent = `\n${' '.repeat(27)}`;
  const lines = Object.entries(table).map(([name, { value, help, standard }]) => {
    const suffix = standard === undefined ? '' : ` (${standard})`;
    return `  ${`--${name} ${value ?? ''}`.padEnd(24)} ${help.replaceAll('\n', indent)}${suffix}`;
  });
  return [title, ...lines].join('\n');
}

/** The deployment needs these cores before the generator may take a second thread. */
const coresOfDeployment = 4;
const threadsMax = 4;
const threads = Math.max(1, Math.min(threadsMax, availableParallelism() - coresOfDeployment));

const table = {
  duration: option('N', 'seconds per run', '4'),
  repeats: option('N', 'runs for each figure that a target uses; the median is reported', '3'),
  connections: option('N', "replaces each scenario's own number"),
  rate: option(
    'N',
    'requests per second, instead of as fast as they are answered;\nalso the rate of half-load, backlog and deletion-beside',
  ),
  threads: option('N', 'threads of the load generator; more from 6 cores', String(threads)),
  only: option('NAMES', 'runs only these scenarios of all, separated by commas'),
  out: option('PATH', 'writes the results to PATH.json and PATH.md'),
  env: { ...option('NAME=VALUE', 'environment of the API and the worker; repeatable'), multiple: true },
  'cpu-prof': option('DIR', 'writes V8 CPU profiles of the API and the worker into DIR'),
  minutes: option('N', 'length of half-load', '5'),
  'flat-events': option('LIST', 'millions of stored events, separated by commas', '1,10'),
  'flat-environments': option('LIST', 'numbers of environments', '10,1000,10000'),
  'backlog-events': option('N', 'events in the backlog', '3000000'),
  'keys-events': option('LIST', 'millions of keys in the index', '10,100'),
  'producer-events': option('N', 'events that the producer sends', '1000000'),
  'deletion-events': option('N', 'stored events of the deletions, ten per user', '10000000'),
  'deletion-requests': option('N', 'requests of deletion-many', '1000'),
  'desk-events': option('N', 'events of the exported user', '10000000'),
  'desk-others': option('N', 'events of all other users beside them', '10000000'),
} as const;

export const optionsUsage = usageOf('Options', table);

export type Options = ReturnType<typeof readOptions>;

/** Reads the options of a session. Throws BenchError, which names the wrong option. */
export function readOptions(args: readonly string[], all: boolean) {
  const { values } = parseArgs({ args: [...args], options: table });
  if (values.only !== undefined && !all) throw new BenchError('--only belongs to all');
  type Name = Exclude<keyof typeof values, 'env'>;
  const text = (name: Name) => values[name] ?? (table[name] as Option).standard ?? '';
  const whole = (name: Name) => positive(`--${name}`, text(name));
  const list = (name: Name) =>
    text(name)
      .split(',')
      .map((part) => positive(`--${name}`, part));
  const millions = (name: Name) => list(name).map((number) => number * 1e6);
  return {
    seconds: whole('duration'),
    repeats: whole('repeats'),
    connections: optional('--connections', values.connections),
    rate: optional('--rate', values.rate),
    threads: whole('threads'),
    env: readEnv(values.env ?? []),
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
    deskOthers: whole('desk-others'),
    only: values.only?.split(','),
    /** Without an extension; undefined: the usual place. */
    out: values.out,
    /** Whether all options that affect the results have their defaults. */
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
