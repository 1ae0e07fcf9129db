// `npm run admin -- …`: from the words of the command line to a command and its parameters, by the command's line of the usage.

import { AdministrationError } from '../contract/errors.js';
import type { Administration } from './administration.js';
import { type Command, type Fields, isOnCommandLine, shapeOf } from './command.js';
import { namedCommands } from './commands.js';

export const usage = `npm run admin -- COMMAND\n\n${namedCommands
  .flatMap(([, { cli }]) => (cli === undefined ? [] : [`  ${usageOf(cli)}`]))
  .sort()
  .join('\n')}`;

/** A long line goes on below, and then says below what it does. */
function usageOf(cli: string): string {
  const [line = '', help] = cli.split('   ');
  const lines = line.replaceAll(/(.{60,110}?) (?=\[)/g, '$1\n      ');
  if (help === undefined) return lines;
  return line.length > 60 ? `${lines}\n      ${help}` : `${line.padEnd(34)}   ${help}`;
}

/** Runs the command that these words name. Words that name none reject with AdministrationError and the usage. */
export async function runCommandLine(
  administration: Administration,
  words: readonly string[],
): Promise<unknown> {
  const { name, command, read } = find(words);
  const { fields, nameOf } = read;
  const give = (params: Fields) => administration.give(name, params, nameOf);
  return command.byCommandLine?.(give, fields, administration.context) ?? give(fields);
}

/** Carries out a command that needs no service; undefined if the words name no such command. */
export function runWithoutService(words: readonly string[]): unknown {
  const { command, read } = find(words);
  return command.withoutService?.(read.fields);
}

type Read = { readonly fields: Fields; readonly nameOf: (field: string) => string };

/** The first command of this name whose line has these words. */
function find(words: readonly string[]) {
  let fault = new AdministrationError(usage);
  for (const [name, command] of namedCommands) {
    const grammar = grammarOf(command);
    if (grammar === undefined || grammar.name.some((word, place) => words[place] !== word)) continue;
    const read = readWords(command, grammar, words.slice(grammar.name.length));
    if (!(read instanceof AdministrationError)) return { name, command, read };
    fault = read;
  }
  throw fault;
}

/** An option, a flag, or a parameter by its place. */
type Part = {
  /** As the line has it, such as `--name` or `APP_ID`. */
  readonly shown: string;
  readonly field: string;
  readonly isRequired: boolean;
  readonly isFlag: boolean;
  /** Of several: a list, or `NAME=VALUE` by name. */
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
    ([, bracket, option, value = '', place = '', dots]): Part => ({
      shown: option ?? place,
      field: fieldNamed(given, (option?.slice(2) ?? place).toLowerCase().replaceAll('-', '_'), value),
      isRequired: bracket === undefined,
      isFlag: option !== undefined && value === '',
      ...(dots === undefined ? {} : { many: value.includes('=') ? 'named' : 'list' }),
    }),
  );
  return { name: name.split(' '), parts };
}

/** The parameter that a word of the line stands for: `--origin` for origins, `--account ACCOUNT_ID` for account_id. */
function fieldNamed(given: object, word: string, value: string): string {
  const names = [word, `${word}s`, word.replace(/y$/, 'ies'), value.toLowerCase()];
  return names.find((name) => Object.hasOwn(given, name)) ?? word;
}

function readWords(
  command: Command,
  { parts }: Grammar,
  words: readonly string[],
): Read | AdministrationError {
  const options = parts.filter(({ shown }) => shown.startsWith('--'));
  const places = parts.filter((part) => !options.includes(part));
  const found = new Map<Part, string[]>();
  const rest: string[] = [];
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as string;
    const option = options.find(({ shown }) => shown === word);
    if (option === undefined) {
      // Without options a name may begin with two dashes.
      if (word.startsWith('--') && options.length > 0) return new AdministrationError(usage);
      rest.push(word);
      continue;
    }
    const value = option.isFlag ? '' : words[++i];
    if (value === undefined) return new AdministrationError(usage);
    found.set(option, [...(found.get(option) ?? []), value]);
  }
  for (const part of places) {
    const taken = part.many === undefined ? rest.splice(0, 1) : rest.splice(0);
    if (taken.length > 0) found.set(part, taken);
  }
  const missing = parts.find((part) => part.isRequired && !found.has(part));
  const [unclear] = rest.length > 0 ? places.slice(-1) : places.filter((part) => part === missing);
  if (unclear !== undefined)
    return new AdministrationError(`exactly one ${unclear.shown} is needed\n\n${usage}`);
  if (missing !== undefined || rest.length > 0) return new AdministrationError(usage);
  const fields = Object.fromEntries([...found].map(([part, values]) => [part.field, givenAs(part, values)]));
  return { fields, nameOf: namesOf(command, options) };
}

function givenAs({ isFlag, many }: Part, values: readonly string[]): unknown {
  if (isFlag) return true;
  if (many === 'list') return values;
  // What stands behind the first `=` is its value, so `track=5=6` is none.
  if (many === 'named')
    return Object.fromEntries(values.map((text) => /^([^=]*)=?(.*)$/s.exec(text)?.slice(1, 3) ?? []));
  return values.at(-1);
}

/** A parameter that requests do not have is called as it was typed. */
function namesOf({ http, given = {} }: Command, options: readonly Part[]) {
  return (field: string) => {
    const option = options.find((part) => part.field === field);
    const isTyped = http === undefined || isOnCommandLine(given[field] ?? {});
    return option !== undefined && isTyped ? option.shown : field;
  };
}
