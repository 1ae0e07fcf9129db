// The definition of an administrators' command. From it follow the command's routes, the check of its parameters, its part of the OpenAPI
// document, who may run it, its lines in the audit log, and its form on the command line. A parameter has the same name everywhere.

import type { Allowed } from '../contract/roles.js';
import { optional, type Schema, type Static, type TObject, Type, text } from '../contract/typebox.js';
import type { AdminContext } from '../operations/context.js';
import type { Subjects } from '../registry/audit/audit.js';
import type { Principal } from './access.js';

export type Fields = Readonly<Record<string, unknown>>;

export type CommandContext = AdminContext & {
  readonly principal: Principal;
  /** The caller's name in the audit log. */
  readonly caller: string;
  /** Reports progress to the caller. */
  readonly say: (line: string) => void;
};

type Shape = Readonly<Record<string, Schema>>;

/** The parameters in the paths of routes. */
type InPaths<Route extends string> = Route extends `${string}/:${infer Name}/${infer Rest}`
  ? Name | InPaths<`/${Rest}`>
  : Route extends `${string}/:${infer Name}`
    ? Name
    : never;

/** Routes below /admin/v1, written `METHOD /path/:parameter`: a single one, or several, each with the id of its operation. */
type Http = string | Readonly<Record<string, string>>;
type RouteOf<Of extends Http> = Of extends string ? Of : keyof Of & string;

/** The parameters: those in the path, as texts, and those that `given` describes. */
type ParamsOf<Given extends Shape, Of extends Http> = Static<TObject<Given>> &
  Readonly<Record<Exclude<InPaths<RouteOf<Of>>, keyof Given>, string>>;

export type Definition<Params> = {
  /** The summary of its operations in the OpenAPI document. */
  readonly summary?: string;
  readonly may: Allowed;
  /**
   * Its usage line for `npm run admin -- …`, which also says how words are read; then three blanks and what the command does. Forms: `keys
   * revoke APP_ID [ID]`, `[--name NAME]`, `SHARD…`, `[--main]`.
   */
  readonly cli?: string;
  /** Its earlier name on the command line, which scripts may still use. */
  readonly alias?: string;
  /** Runs on the command line instead of running the command once. */
  readonly byCommandLine?: (
    run: (params: Fields) => Promise<unknown>,
    words: Fields,
    context: CommandContext,
  ) => Promise<unknown>;
  /** Returns the result if these words need no service. */
  readonly withoutService?: (words: Fields) => unknown;
  /** The word that messages use for a parameter when they refuse an unknown one. Without it, unknown parameters are ignored. */
  readonly called?: string;
  /** A parameter that only narrows a list of the caller's account, and so may have any value. */
  readonly narrows?: string;
  /** Parameters that the command itself checks against their schema, with its own messages. */
  readonly checkedInside?: readonly string[];
  /** The parameter that receives the text of the body, unchanged. */
  readonly textOfBody?: string;
  readonly bodyBytesMax?: number;
  /** Whether its queries take turns, since they cost more the more is stored. */
  readonly takesTurns?: true;
  /** Details of its line in the audit log, besides account, environment, key and deletion request. They never say anything about a user. */
  readonly details?: (params: Params) => Fields;
  /** Further details, once the result is known. */
  readonly detailsOfResult?: (result: Fields) => Fields;
  /** Whether the line is all that the command does, so that nothing has happened without it. */
  readonly isKeptByLine?: true;
  /** Which of its actions a command with several of them performs. */
  readonly action?: (params: Params) => string;
  /** Whether it may begin while Redis is empty. */
  readonly loadsState?: true;
  readonly run: (context: CommandContext, params: Params) => Promise<unknown>;
};

type Given<Params extends Shape, Of extends Http> = {
  readonly http?: Of;
  /** The parameters besides those of the path. */
  readonly given?: Params;
};

export type Command = Definition<never> &
  Given<Shape, Http> & {
    /**
     * The audit log's words for its one action, which has the command's name, or for each of several. Undefined: the command only shows
     * something.
     */
    readonly audited?: Words;
  };
type Words = string | Readonly<Record<string, string>>;

/** A command that only shows something, and leaves no line in the audit log. */
// biome-ignore lint/complexity/noBannedTypes: no parameter.
export function shows<Params extends Shape = {}, const Of extends Http = never>(
  definition: Definition<ParamsOf<Params, Of>> & Given<Params, Of>,
): Command {
  return definition as unknown as Command;
}

/** A command that does something; the audit log describes it in these words. */
// biome-ignore lint/complexity/noBannedTypes: no parameter.
export function does<Params extends Shape = {}, const Of extends Http = never>(
  words: Words,
  definition: Definition<ParamsOf<Params, Of>> & Given<Params, Of>,
): Command {
  return { ...definition, audited: words } as unknown as Command;
}

/** The routes of a command, each with the id of its operation. */
export function routesOf(name: string, { http = {} }: Command): (readonly [route: string, id: string])[] {
  return typeof http === 'string' ? [[http, name]] : Object.entries(http);
}

/** All parameters, including those of paths. */
export function shapeOf(command: Command): Shape {
  const names = routesOf('', command).flatMap(([route]) => [...route.matchAll(/:(\w+)/g)]);
  return { ...Object.fromEntries(names.map(([, name]) => [name, text()])), ...command.given };
}

/** The actions of a command in the audit log, with their words. */
export function actionsOf(name: string, { audited = {} }: Command): Readonly<Record<string, string>> {
  return typeof audited === 'string' ? { [actionNamed(name)]: audited } : audited;
}

/** `create_key` of `createKey`. */
export function actionNamed(command: string): string {
  return command.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Which subject of an audit line each parameter or field of an answer names. */
export const subjectNames: Readonly<Record<string, keyof Subjects>> = {
  account_id: 'account_id',
  app_id: 'app_id',
  id: 'key_id',
  deletion_request_id: 'deletion_request_id',
};

/** Parameter that narrows a list to an account. */
export const scope = { account_id: optional(text('Only those of this account.')) };

const digits = '^[0-9]+$';

/** A whole number, as a number or as text in decimal digits, since command lines and queries have only texts. */
export function wholeNumber(minimum: number, maximum: number, more: object = {}) {
  return Type.Unsafe<number>({ type: ['integer', 'string'], pattern: digits, minimum, maximum, ...more });
}

export function isWholeNumber(schema: object): boolean {
  return 'pattern' in schema && schema.pattern === digits;
}

/** Marks a parameter that only the command line has. */
export const onCommandLine = { 'x-command-line': true };

/** Whether a parameter is never in a query or a body: it is in the path, or only on the command line. */
export function isNotSent(command: Command, field: string): boolean {
  const inPath = routesOf('', command).some(([route]) => `${route}/`.includes(`/:${field}/`));
  return inPath || isOnCommandLine(command.given?.[field] ?? {});
}

export function isOnCommandLine(schema: object): boolean {
  return 'x-command-line' in schema;
}
