// What a command of administrators is: one definition, from which follow its routes, the check of what it is given, its part of the
// OpenAPI document, who may give it, its lines in the audit log, and its words on the command line. A parameter has the same name
// in all of them.

import type { Subjects } from '../audit/audit.js';
import type { Allowed } from '../contract/roles.js';
import { type Schema, type Static, type TObject, Type } from '../contract/typebox.js';
import type { Principal } from './access.js';
import type { AdminContext } from './context.js';

export type Fields = Readonly<Record<string, unknown>>;

export type CommandContext = AdminContext & {
  readonly principal: Principal;
  /** The caller's name in the audit log. */
  readonly caller: string;
  /** Gets reports of the progress. */
  readonly say: (line: string) => void;
};

/** How a command is in the audit log. */
export type Audit<Params> = {
  /** Of the action that has the command's name; or of each of several actions. */
  readonly words: string | Readonly<Record<string, string>>;
  /** Which of several. */
  readonly action?: (params: Params) => string;
  /** What a line says besides account, environment, key and deletion request. Never anything of a user. */
  readonly details?: (params: Params) => Fields;
  /** Whether it may begin while Redis is empty. */
  readonly loadsState?: true;
};

/** How a command is given by `npm run admin -- …`. */
export type CommandLine = {
  /** Its line of the usage, by which its words are read: `keys revoke APP_ID [ID]`, `[--name NAME]`, `SHARD…`, `[--main]`. */
  readonly line: string;
  readonly help?: string;
  /** What is done instead of giving the command once. */
  readonly by?: (
    give: (params: Fields) => Promise<unknown>,
    words: Fields,
    context: CommandContext,
  ) => Promise<unknown>;
  /** The result of words that need no service. */
  readonly alone?: (words: Fields) => unknown;
};

type Shape = Readonly<Record<string, Schema>>;
export type Definition<Given extends Shape, Params = Static<TObject<Given>>> = {
  /** Of its operations in the OpenAPI document. */
  readonly summary?: string;
  readonly may: Allowed;
  /** `METHOD /path/:parameter` below /admin/v1; or several, each with the id of its operation. */
  readonly http?: string | Readonly<Record<string, string>>;
  readonly cli?: CommandLine;
  readonly given?: Given;
  /** What parameters are called, so that others are refused. Without it others are ignored. */
  readonly called?: string;
  /** Parameters that their subject checks, by the same schema and in words of its own. */
  readonly checkedInside?: readonly string[];
  /** The parameter that is the text of the body as it came. */
  readonly textOfBody?: string;
  readonly bodyBytesMax?: number;
  /** What it answers by HTTP. */
  readonly answer?: Schema;
  readonly audit: 'none' | Audit<Params>;
  /** Whether its queries cost more when more is stored: those of people take turns. */
  readonly takesTurns?: true;
  readonly run: (context: CommandContext, params: Params) => Promise<unknown>;
};

export type Command = Definition<Shape, never>;

// biome-ignore lint/complexity/noBannedTypes: no parameter.
export function command<Given extends Shape = {}>(definition: Definition<Given>): Command {
  return definition as unknown as Command;
}

/** The routes of a command, each with the id of its operation. */
export function routesOf(name: string, { http = {} }: Command): (readonly [route: string, id: string])[] {
  return typeof http === 'string' ? [[http, name]] : Object.entries(http);
}

/** The actions of a command in the audit log, with their words. */
export function actionsOf(name: string, { audit }: Command): Readonly<Record<string, string>> {
  if (audit === 'none') return {};
  return typeof audit.words === 'string' ? { [actionNamed(name)]: audit.words } : audit.words;
}

/** `create_key` of `createKey`. */
export function actionNamed(command: string): string {
  return command.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** What a line of the audit log is about, by the names of parameters and of fields of answers. */
export const subjectNames: Readonly<Record<string, keyof Subjects>> = {
  account_id: 'account_id',
  app_id: 'app_id',
  id: 'key_id',
  deletion_request_id: 'deletion_request_id',
};

export const text = Type.String();
export const texts = Type.Array(text);
export const optional = Type.Optional(text);
export const ofAccount = { account_id: text };
export const ofEnvironment = { app_id: text };
/** Narrows a list to an account. */
export const scope = { account_id: Type.Optional(Type.String({ description: 'Only of this account.' })) };

export function oneOf<const Value extends string>(values: readonly Value[], more: object = {}) {
  return Type.Unsafe<Value>({ type: 'string', enum: [...values], ...more });
}

const digits = '^[0-9]+$';

/** A whole number, as a number or in decimal digits: command lines and queries have texts only. */
export function wholeNumber(minimum: number, maximum: number, more: object = {}) {
  return Type.Unsafe<number>({ type: ['integer', 'string'], pattern: digits, minimum, maximum, ...more });
}

export function isWholeNumber(schema: object): boolean {
  return 'pattern' in schema && schema.pattern === digits;
}

/** Marks a parameter that only the command line has. */
export const onCommandLine = { 'x-command-line': true };

/** Whether a parameter is never in a query or a body: only the command line has it, or a path. */
export function isNotSent(command: Command, field: string): boolean {
  const inPath = routesOf('', command).some(([route]) => `${route}/`.includes(`/:${field}/`));
  return inPath || isOnCommandLine(command.given?.[field] ?? {});
}

export function isOnCommandLine(schema: object): boolean {
  return 'x-command-line' in schema;
}
