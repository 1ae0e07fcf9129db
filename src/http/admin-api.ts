// The administration over HTTP, /admin/v1 on ADMIN_PORT: the same as on the command line, for callers with
// `Authorization: Bearer ADMIN_TOKEN`. Without an ADMIN_TOKEN it is off.

import type { HttpRequest } from 'uWebSockets.js';
import { AdministrationError } from '../accounts/accounts.js';
import { StateNotLoaded } from '../accounts/registry.js';
import { outcomes, rejection } from '../contract/outcomes.js';
import { parseDocument } from '../ingest/document.js';
import { describeError, type Log } from '../log.js';
import { isAdministrator, readBearer } from './authorization.js';
import { readJsonBody } from './body.js';
import type { Exchange } from './exchange.js';
import { isOwnFault } from './fault.js';
import { type Method, type Route, withoutBody } from './server.js';

/** Runs one command of the administration, given as on the command line. */
export type RunCommand = (args: readonly string[]) => Promise<unknown>;

export type AdminApiOptions = { readonly adminToken: string; readonly run: RunCommand; readonly log: Log };

/** The command of a request, from the parameters of its path and the fields of its body. */
type ToCommand = (path: readonly string[], body: Readonly<Record<string, unknown>>) => string[];

const commandOf: readonly [Method, string, ToCommand][] = [
  ['get', '/accounts', () => ['accounts', 'list']],
  [
    'post',
    '/accounts',
    (_, { name, environments }) => [
      'accounts',
      'create',
      textOf('name', name),
      ...listOf('environments', environments).flatMap((environment) => ['--environment', environment]),
    ],
  ],
  [
    'post',
    '/accounts/:account_id/environments',
    ([accountId], { name }) => ['environments', 'add', accountId ?? '', textOf('name', name)],
  ],
  [
    'patch',
    '/environments/:app_id',
    ([appId], body) => ['environments', 'set', appId ?? '', ...settingsOf(body)],
  ],
  ['get', '/environments/:app_id/stats', ([appId]) => ['environments', 'stats', appId ?? '']],
  ['get', '/environments/:app_id/rejected', ([appId]) => ['rejected', 'list', appId ?? '']],
  ['get', '/environments/:app_id/key', ([appId]) => ['keys', 'show', appId ?? '']],
  ['post', '/environments/:app_id/key', ([appId]) => ['keys', 'create', appId ?? '']],
  ['put', '/environments/:app_id/key', ([appId]) => ['keys', 'rotate', appId ?? '']],
  ['del', '/environments/:app_id/key', ([appId]) => ['keys', 'revoke', appId ?? '']],
  ['get', '/deletions', () => ['deletions', 'list']],
  ['get', '/deletions/:deletion_request_id', ([id]) => ['deletions', 'show', id ?? '']],
  ['post', '/deletions/:deletion_request_id/end', ([id]) => ['deletions', 'end', id ?? '']],
  ['get', '/failed', () => ['failed', 'list']],
  ['post', '/failed/retry', () => ['failed', 'retry']],
  ['post', '/restore', () => ['restore']],
];

const bodyBytesMax = 64 * 1024;

export function adminApiRoutes(options: AdminApiOptions): Route[] {
  return commandOf.map(([method, path, toCommand]) => ({
    method,
    path: `/admin/v1${path}`,
    handle: (exchange, req) => handle(options, toCommand, path.split(':').length - 1, exchange, req),
  }));
}

function handle(
  options: AdminApiOptions,
  toCommand: ToCommand,
  parameterCount: number,
  exchange: Exchange,
  req: HttpRequest,
): void {
  const path = Array.from({ length: parameterCount }, (_, i) => decode(req.getParameter(i) ?? ''));
  const hasBody = !['get', 'delete'].includes(req.getMethod());
  if (!isAdministrator(options.adminToken, readBearer(exchange.framing.authorization))) {
    const reason = rejection('unauthorized', 'Unauthorized: send Authorization: Bearer ADMIN_TOKEN.');
    const { message } = reason;
    return withoutBody(exchange).refuse(reason, { error: message, message }, [
      ['WWW-Authenticate', 'Bearer realm="sluice-admin"'],
    ]);
  }
  if (!hasBody || exchange.framing.length === 0)
    return exchange.attend(run(options, withoutBody(exchange), toCommand, path, {}));
  readJsonBody(exchange, bodyBytesMax, (bytes) => {
    const document = parseDocument(bytes);
    if ('code' in document) return exchange.refuse(document);
    const { value } = document;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      return exchange.refuse(rejection('invalid_type', 'The body must be an object.'));
    }
    exchange.attend(run(options, exchange, toCommand, path, value as Record<string, unknown>));
  });
}

async function run(
  options: AdminApiOptions,
  exchange: Exchange,
  toCommand: ToCommand,
  path: readonly string[],
  body: Readonly<Record<string, unknown>>,
): Promise<void> {
  try {
    exchange.reply(200, JSON.stringify(await options.run(toCommand(path, body))), [
      ['Cache-Control', 'no-store'],
    ]);
  } catch (error) {
    if (error instanceof AdministrationError)
      return exchange.refuse(rejection('not_possible', error.message));
    if (error instanceof StateNotLoaded) return exchange.refuse(rejection('overloaded', error.message));
    if (isOwnFault(error)) throw error;
    options.log.warn({ error: describeError(error) }, 'a request of the administration failed');
    exchange.refuse(rejection('unknown', outcomes.unknown.meaning));
  }
}

/** `{main, validation, limits: {track: "none"}, allow_identities: []}` as options of the command line. */
function settingsOf(body: Readonly<Record<string, unknown>>): string[] {
  const args: string[] = [];
  for (const [name, value] of Object.entries(body)) {
    if (name === 'main' && value === true) args.push('--main');
    else if (name === 'validation') args.push('--validation', textOf(name, value));
    else if (name === 'allow_identities')
      args.push(...listOf(name, value).flatMap((identity) => ['--allow-identity', identity]));
    else if (name === 'limits' && typeof value === 'object' && value !== null) {
      for (const [limit, max] of Object.entries(value)) args.push('--limit', `${limit}=${maxOf(limit, max)}`);
    } else throw new AdministrationError(`${name} cannot be set to this value`);
  }
  return args;
}

/** A limit as on the command line, which says which texts and numbers it takes. */
function maxOf(limit: string, value: unknown): string | number {
  if (limit.includes('=')) throw new AdministrationError(`${limit} is no limit`);
  if (typeof value === 'string' || typeof value === 'number') return value;
  throw new AdministrationError(`the limit ${limit} must be a number or a string`);
}

function textOf(name: string, value: unknown): string {
  // An option of the command line begins with two dashes; a name must not become one.
  if (typeof value !== 'string' || value.startsWith('--'))
    throw new AdministrationError(`${name} must be a string`);
  return value;
}

function listOf(name: string, value: unknown): string[] {
  if (!Array.isArray(value)) throw new AdministrationError(`${name} must be a list of strings`);
  return value.map((element) => textOf(name, element));
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
