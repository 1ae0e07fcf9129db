// `npm run admin -- …`: turns the arguments of the command line into a command and its parameters, guided by the command's usage line.

import { AdministrationError } from '../contract/errors.js';
import type { Administration } from './administration.js';
import { type Command, type Fields, isOnCommandLine, shapeOf } from './command.js';
import { namedCommands } from './commands.js';

export const usage = `npm run admin -- COMMAND\n\n${usageLines()}`;

/** The usage lines of the commands that begin with these words. */
function usageLines(words = ''): string {
  return namedCommands
    .flatMap(([, { cli }]) => (cli?.startsWith(words) ? [`  ${usageOf(cli)}`] : []))
    .sort()
    .join('\n');
}

/** A usage line with its explanation; a long line is wrapped, with the explanation below it. */
function usageOf(cli: string): string {
  const [line = '', help] = cli.split('   ');
  const lines = line.replaceAll(/(.{60,110}?) (?=\[)/g, '$1\n      ');
  if (help === undefined) return lines;
  return line.length > 60 ? `${lines}\n      ${help}` : `${line.padEnd(34)}   ${help}`;
}

/** Runs the command that these words name. If they do not fit one, rejects with AdministrationError, which says why, and the usage. */
export async function runCommandLine(
  administration: Administration,
  words: readonly string[],
): Promise<unknown> {
  const { name, command, read } = find(words);
  const { fields, nameOf } = read;
  const run = (params: Fields) => administration.run(name, params, nameOf);
  return command.byCommandLine?.(run, fields, administration.context) ?? run(fields);
}

/** Runs a command that needs no service; undefined if the words name no such command. */
export function runWithoutService(words: readonly string[]): unknown {
  const { command, read } = find(words);
  return command.withoutService?.(read.fields);
}

type Read = { readonly fields: Fields; readonly nameOf: (field: string) => string };

/** The first command with this name whose usage line fits these words. */
function find(words: readonly string[]) {
  let why: string | undefined;
  for (const [name, command] of namedCommands) {
    const grammar = grammarOf(command);
    if (grammar === undefined) continue;
    const typed = [grammar.name, command.alias?.split(' ')].find((each) => begins(words, each));
    if (typed === undefined) continue;
    const read = readWords(command, grammar, words.slice(typed.length));
    if (typeof read !== 'string') return { name, command, read };
    why = `${read}\n\n${usageLines(grammar.name.join(' '))}`;
  }
  throw new AdministrationError(why ?? whyUnknown(words));
}

function begins(words: readonly string[], name: readonly string[] | undefined): boolean {
  return name?.every((word, index) => words[index] === word) ?? false;
}

function whyUnknown([first = '--help', second = '']: readonly string[]): string {
  if (first.startsWith('-') || first === 'help') return usage;
  const why = `there is no command ${`${first} ${second}`.trim()}`;
  const alike = usageLines(`${first} `);
  return alike === '' ? `${why}; --help shows all` : `${why}\n\n${alike}`;
}

/** An option, a flag, or a positional parameter. */
type Part = {
  /** As in the usage line, such as `--name` or `APP_ID`. */
  readonly shown: string;
  readonly field: string;
  readonly isRequired: boolean;
  readonly isFlag: boolean;
  /** For several values: a list, or `NAME=VALUE` by name. */
  readonly many?: 'list' | 'named';
};
type Grammar = { readonly name: readonly string[]; readonly parts: readonly Part[] };

const partForm = /(\[)?(?:(--[a-z-]+)(?: ([^\s\]…]+))?|([A-Z_]+))\]?(…)?/g;

function grammarOf(command: Command): Grammar | undefined {
  const [line] = command.cli?.split('   ') ?? [];
  if (line === undefined) return undefined;
  const given = shapeOf(command);
  const [name = ''] = /^[a-z-]+(?: [a-z][a-z-]*)?/.exec(line) ?? [];
  const parts = [...line.slice(name.length).matchAll(partForm)].map(
    ([, bracket, option, value = '', positional = '', dots]): Part => ({
      shown: option ?? positional,
      field: fieldNamed(given, (option?.slice(2) ?? positional).toLowerCase().replaceAll('-', '_'), value),
      isRequired: bracket === undefined,
      isFlag: option !== undefined && value === '',
      ...(dots === undefined ? {} : { many: value.includes('=') ? 'named' : 'list' }),
    }),
  );
  return { name: name.split(' '), parts };
}

/** The parameter that a word of the usage line stands for: `--origin` for origins, `--account ACCOUNT_ID` for account_id. */
function fieldNamed(given: object, word: string, value: string): string {
  const names = [word, `${word}s`, word.replace(/y$/, 'ies'), value.toLowerCase()];
  return names.find((name) => Object.hasOwn(given, name)) ?? word;
}

/** The parameters in the words after a command's name, or why they do not fit it. */
function readWords(command: Command, { parts }: Grammar, words: readonly string[]): Read | string {
  const options = parts.filter(({ shown }) => shown.startsWith('--'));
  const positionals = parts.filter((part) => !options.includes(part));
  const found = new Map<Part, string[]>();
  const rest: string[] = [];
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as string;
    const option = options.find(({ shown }) => shown === word);
    if (option === undefined) {
      // Without options a name may begin with two dashes.
      if (word.startsWith('--') && options.length > 0) return `${word} does not fit here`;
      rest.push(word);
      continue;
    }
    const value = option.isFlag ? '' : words[++i];
    if (value === undefined) return `${word} needs a value`;
    found.set(option, [...(found.get(option) ?? []), value]);
  }
  for (const part of positionals) {
    const taken = part.many === undefined ? rest.splice(0, 1) : rest.splice(0);
    if (taken.length > 0) found.set(part, taken);
  }
  const missing = parts.find((part) => part.isRequired && !found.has(part));
  const [unclear] = rest.length > 0 ? positionals.slice(-1) : positionals.filter((part) => part === missing);
  if (unclear !== undefined) return `exactly one ${unclear.shown} is needed`;
  if (missing !== undefined) return `${missing.shown} is needed`;
  if (rest.length > 0) return `${rest[0]} does not fit here`;
  const fields = Object.fromEntries([...found].map(([part, values]) => [part.field, givenAs(part, values)]));
  return { fields, nameOf: namesOf(command, options) };
}

function givenAs({ isFlag, many }: Part, values: readonly string[]): unknown {
  if (isFlag) return true;
  if (many === 'list') return values;
  // Everything after the first `=` is the value, so `track=5=6` is refused later.
  if (many === 'named')
    return Object.fromEntries(values.map((text) => /^([^=]*)=?(.*)$/s.exec(text)?.slice(1, 3) ?? []));
  return values.at(-1);
}

/** The names of parameters in messages: as typed, or the wire name if requests also have the parameter. */
function namesOf({ http, given = {} }: Command, options: readonly Part[]) {
  return (field: string) => {
    const option = options.find((part) => part.field === field);
    const isTyped = http === undefined || isOnCommandLine(given[field] ?? {});
    return option !== undefined && isTyped ? option.shown : field;
  };
}
