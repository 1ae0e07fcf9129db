// The command line's options. A table defines the value, meaning, default and parser of each option; both the parsed values and the usage
// text come from it. These are the options of a session; outside/options.ts has those of a load on a running deployment.

import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { BenchError } from './failure.js';

/** Parses the text of an option. Throws BenchError, whose message has the name, if the text is invalid. */
type Parse<Value> = (text: string, name: string) => Value;

type Option = {
  /** The placeholder for the value in the usage text; absent for a flag. */
  readonly value?: string;
  readonly help: string;
  readonly standard?: string;
  readonly multiple?: true;
  readonly read: (texts: readonly string[], name: string) => unknown;
};
type Table = Readonly<Record<string, Option>>;
type Texts = readonly string[];

/** Declares an option with a default. */
export function usual<Value>(standard: string, value: string, help: string, parse: Parse<Value>) {
  const read = ([text = standard]: Texts, name: string) => parse(text, name);
  return { value, help, standard, read };
}

/** Declares an option that has no value unless it is given. */
export function option<Value>(value: string, help: string, parse: Parse<Value>) {
  const read = ([text]: Texts, name: string) => (text === undefined ? undefined : parse(text, name));
  return { value, help, read };
}

/** Declares an option that may be given several times. */
export function repeated<Value>(value: string, help: string, parse: Parse<Value>) {
  const read = (texts: Texts, name: string) => texts.map((text) => parse(text, name));
  return { value, help, multiple: true as const, read };
}

export function flag(help: string) {
  return { help, read: (texts: Texts) => texts.length > 0 };
}

export const text: Parse<string> = (given) => given;
export const list: Parse<string[]> = (given) => given.split(',');
const wholes: Parse<number[]> = (given, name) => given.split(',').map((part) => whole(part, name));
const millions: Parse<number[]> = (given, name) => wholes(given, name).map((number) => number * 1e6);

/** A whole number above 0. */
export function whole(given: string, name: string): number {
  const number = Number(given);
  if (!Number.isSafeInteger(number) || number < 1) {
    throw new BenchError(`${name} must be a whole number above 0, not ${JSON.stringify(given)}`);
  }
  return number;
}

function pair(given: string, name: string): [name: string, value: string] {
  const equals = given.indexOf('=');
  if (equals < 1) throw new BenchError(`${name} takes NAME=VALUE, not ${JSON.stringify(given)}`);
  return [given.slice(0, equals), given.slice(equals + 1)];
}

/** The name on the command line: `flatEvents` is `--flat-events`. */
function nameOf(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

export function usageOf(title: string, table: Table): string {
  const indent = `\n${' '.repeat(27)}`;
  const lines = Object.entries(table).map(([key, { value, help, standard }]) => {
    const suffix = standard === undefined ? '' : ` (${standard})`;
    return `  ${`--${nameOf(key)} ${value ?? ''}`.padEnd(24)} ${help.replaceAll('\n', indent)}${suffix}`;
  });
  return [title, ...lines].join('\n');
}

/** Reads the options of a command line. Throws the error of `parseArgs`, or BenchError, which names the invalid option. */
export function readTable<T extends Table>(table: T, args: readonly string[]) {
  const declared = Object.entries(table).map(([key, { value, multiple = false }]) => [
    nameOf(key),
    { type: value === undefined ? 'boolean' : 'string', multiple },
  ]);
  const parsed = parseArgs({ args: [...args], options: Object.fromEntries(declared) });
  const values = parsed.values as Readonly<Record<string, string | boolean | string[] | undefined>>;
  const read = Object.entries(table).map(([key, { read }]) => {
    const given = [values[nameOf(key)] ?? []].flat().map(String);
    return [key, read(given, `--${nameOf(key)}`)];
  });
  return Object.fromEntries(read) as { readonly [Key in keyof T]: ReturnType<T[Key]['read']> };
}

/** The deployment needs this many cores before the generator may use a second thread. */
const coresOfDeployment = 4;
const threadsMax = 4;
const threads = Math.max(1, Math.min(threadsMax, availableParallelism() - coresOfDeployment));

const table = {
  duration: usual('4', 'N', 'seconds per run', whole),
  repeats: usual('3', 'N', 'runs for each figure that a target uses; the median is reported', whole),
  connections: option('N', "replaces each scenario's own number", whole),
  rate: option(
    'N',
    'requests per second, instead of as fast as they are answered;\nalso the rate of half-load, backlog, deletion-beside and stream',
    whole,
  ),
  threads: usual(String(threads), 'N', 'threads of the load generator; more from 6 cores', whole),
  out: option('PATH', 'writes the results to PATH.json and PATH.md', text),
  env: repeated('NAME=VALUE', 'an environment variable of the API and the worker; repeatable', pair),
  cpuProf: option('DIR', 'writes V8 CPU profiles of the API and the worker into DIR', text),
  minutes: usual('5', 'N', 'length of half-load', whole),
  flatEvents: usual('1,10', 'LIST', 'millions of stored events, separated by commas', millions),
  flatEnvironments: usual('10,1000,10000', 'LIST', 'numbers of environments', wholes),
  backlogEvents: usual('3000000', 'N', 'events in the backlog', whole),
  keysEvents: usual('10,100', 'LIST', 'millions of keys in the index', millions),
  producerEvents: usual('1000000', 'N', 'events that the producer sends', whole),
  deletionEvents: usual('10000000', 'N', 'stored events of the deletions, ten per user', whole),
  streamEvents: usual('10,30,100', 'LIST', 'millions of stored events of stream, ten per user', millions),
  streamMinutes: usual('30', 'N', 'length of each part of stream', whole),
  deletionRequests: usual('1000', 'N', 'requests of deletion-many', whole),
  deskEvents: usual('10000000', 'N', 'events of the exported user', whole),
  deskOthers: usual('90000000', 'N', 'events of all other users beside them', whole),
};

export const optionsUsage = usageOf('Options', table);

export type Options = ReturnType<typeof readOptions>;

/** Reads the options of a session. Throws as `readTable` does. */
export function readOptions(args: readonly string[]) {
  const values = readTable(table, args);
  return {
    ...values,
    env: Object.fromEntries(values.env) as NodeJS.ProcessEnv,
    /** Whether all options that affect the results have their default values. */
    standard: args.every((arg, i) => arg === '--out' || args[i - 1] === '--out'),
  };
}
