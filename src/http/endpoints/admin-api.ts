// The administration over HTTP, /admin/v1 on ADMIN_PORT: the same as on the command line, for programs with
// `Authorization: Bearer ADMIN_TOKEN`, and for people who are signed in to the console, as far as their roles allow.

import type { HttpRequest } from 'uWebSockets.js';
import {
  AdministrationError,
  type EnvironmentSettings,
  parseImportUntil,
  parseLimit,
  parseRetainDays,
  parseValidation,
  parseWriteKey,
} from '../../accounts/accounts.js';
import { parseOverlap } from '../../accounts/api-keys.js';
import { NotCopied } from '../../accounts/mirror.js';
import { parseOrigins } from '../../accounts/origins.js';
import { StateNotLoaded } from '../../accounts/registry.js';
import { Forbidden, type Principal } from '../../admin/access.js';
import type { AdminCommands } from '../../admin/commands.js';
import { TakesTooLong } from '../../admin/users.js';
import { type Actor, AuditLogFull } from '../../audit/audit.js';
import { NoRoom } from '../../clickhouse/definitions.js';
import { administration, bodies } from '../../contract/limits.js';
import { outcomes, type Rejection, rejection } from '../../contract/outcomes.js';
import { parseDocument } from '../../ingest/document.js';
import { refuseLoneSurrogates } from '../../ingest/explain.js';
import { describeError, type Log } from '../../log.js';
import { parseRole } from '../../people/people.js';
import { readJsonBody } from '../protocol/body.js';
import type { Exchange } from '../protocol/exchange.js';
import { isOwnFault } from '../protocol/fault.js';
import { readParameters } from '../protocol/query.js';
import { type Method, type Route, withoutBody } from '../protocol/server.js';
import { type AdminCaller, type AdminCallers, type Refuse, refuseUnread } from './admin-caller.js';

export type AdminApiOptions = {
  readonly callers: AdminCallers;
  /** The commands for a caller. */
  readonly commandsFor: (actor: Actor, principal: Principal) => AdminCommands;
  readonly log: Log;
};

/** Runs the command of a request with the parameters of its path and the fields of its body, or of its query; and with the body's text. */
type Run = (
  commands: AdminCommands,
  path: readonly string[],
  body: Readonly<Record<string, unknown>>,
  text: string,
) => Promise<unknown>;

/** A larger bound of the body stands behind the command. */
const endpoints: readonly [Method, string, Run, bytesMax?: number][] = [
  ['get', '/accounts', (commands, _, body) => commands.listAccounts(scopeOf(body))],
  [
    'post',
    '/accounts',
    (commands, _, { name, environments }) =>
      commands.createAccount({
        name: textOf('name', name),
        environments: listOf('environments', environments),
      }),
  ],
  [
    'post',
    '/accounts/:account_id/environments',
    (commands, [accountId = ''], { name }) =>
      commands.addEnvironment({ accountId, name: textOf('name', name) }),
  ],
  [
    'get',
    '/accounts/:account_id/callback',
    (commands, [accountId = '']) => commands.showCallback({ accountId }),
  ],
  [
    'put',
    '/accounts/:account_id/callback',
    (commands, [accountId = ''], { url }) => commands.setCallback({ accountId, url: textOf('url', url) }),
  ],
  [
    'del',
    '/accounts/:account_id/callback',
    (commands, [accountId = '']) => commands.removeCallback({ accountId }),
  ],
  [
    'post',
    '/accounts/:account_id/callback/test',
    (commands, [accountId = '']) => commands.testCallback({ accountId }),
  ],
  [
    'patch',
    '/environments/:app_id',
    (commands, [appId = ''], body) => commands.setEnvironment({ appId, settings: settingsOf(body) }),
  ],
  ['get', '/environments/:app_id', (commands, [appId = '']) => commands.showEnvironment({ appId })],
  ['get', '/environments/:app_id/stats', (commands, [appId = '']) => commands.showStats({ appId })],
  ['get', '/environments/:app_id/rejected', (commands, [appId = '']) => commands.listRejected({ appId })],
  [
    'get',
    '/environments/:app_id/rejections',
    (commands, [appId = ''], { span }) =>
      commands.showRejections({ appId, ...(span === undefined ? {} : { span: textOf('span', span) }) }),
  ],
  ['get', '/environments/:app_id/key', (commands, [appId = '']) => commands.showKey({ appId })],
  [
    'post',
    '/environments/:app_id/key',
    (commands, [appId = ''], { name = '' }) => commands.createKey({ appId, name: textOf('name', name) }),
  ],
  [
    'put',
    '/environments/:app_id/key',
    (commands, [appId = ''], { name, overlap }) =>
      commands.rotateKey({
        appId,
        name: name === undefined ? undefined : textOf('name', name),
        overlapMs: overlap === undefined ? undefined : parseOverlap(overlap),
      }),
  ],
  ['del', '/environments/:app_id/key', (commands, [appId = '']) => commands.revokeKey({ appId })],
  ['get', '/environments/:app_id/keys', (commands, [appId = '']) => commands.listKeys({ appId })],
  [
    'del',
    '/environments/:app_id/keys/:id',
    (commands, [appId = '', id = '']) => commands.revokeKey({ appId, id }),
  ],
  ['get', '/environments/:app_id/write-keys', (commands, [appId = '']) => commands.listWriteKeys({ appId })],
  [
    'post',
    '/environments/:app_id/write-keys',
    (commands, [appId = ''], { name = '' }) => commands.createWriteKey({ appId, name: textOf('name', name) }),
  ],
  [
    'del',
    '/environments/:app_id/write-keys/:id',
    (commands, [appId = '', id = '']) => commands.revokeWriteKey({ appId, id }),
  ],
  ['get', '/people', (commands, _, body) => commands.listPeople(scopeOf(body))],
  [
    'post',
    '/people',
    (commands, _, { email, role, ...body }) =>
      commands.invitePerson({ email: textOf('email', email), role: parseRole(role), ...scopeOf(body) }),
  ],
  ['del', '/people/:person_id', (commands, [personId = '']) => commands.removePerson({ personId })],
  [
    'get',
    '/deletions',
    (commands, _, { state, reference, cursor, ...body }) =>
      commands.listDeletions({
        ...scopeOf(body),
        ...(state === undefined ? {} : { state: textOf('state', state) }),
        ...(reference === undefined ? {} : { reference: textOf('reference', reference) }),
        ...(cursor === undefined ? {} : { cursor: textOf('cursor', cursor) }),
      }),
  ],
  [
    'get',
    '/deletions/:deletion_request_id',
    (commands, [requestId = '']) => commands.showDeletion({ requestId }),
  ],
  [
    'post',
    '/deletions/:deletion_request_id/end',
    (commands, [requestId = '']) => commands.endDeletion({ requestId }),
  ],
  [
    'get',
    '/deletions/:deletion_request_id/users',
    (commands, [requestId = ''], { cursor }) =>
      commands.listDeletionUsers({
        requestId,
        cursor: cursor === undefined ? undefined : textOf('cursor', cursor),
      }),
  ],
  [
    'get',
    '/deletions/:deletion_request_id/certificate',
    (commands, [requestId = '']) => commands.showCertificate({ requestId }),
  ],
  [
    'get',
    '/accounts/:account_id/user_exports',
    (commands, [accountId = '']) => commands.listExports({ accountId }),
  ],
  [
    'post',
    '/accounts/:account_id/user_exports',
    (commands, [accountId = ''], { users }) => commands.submitExport({ accountId, users }),
    bodies.adminListBytesMax,
  ],
  [
    'get',
    '/accounts/:account_id/overview',
    (commands, [accountId = '']) => commands.showOverview({ accountId }),
  ],
  [
    'get',
    '/accounts/:account_id/traffic',
    (commands, [accountId = ''], { app_id, span }) =>
      commands.showTraffic({
        accountId,
        ...(app_id === undefined ? {} : { appId: textOf('app_id', app_id) }),
        ...(span === undefined ? {} : { span: textOf('span', span) }),
      }),
  ],
  ['get', '/deployment', (commands) => commands.showDeployment()],
  [
    'get',
    '/environments/:app_id/event-names',
    (commands, [appId = ''], { days }) => commands.listEventNames({ appId, days: daysOf(days) }),
  ],
  [
    'get',
    '/environments/:app_id/event-properties',
    (commands, [appId = ''], { event, days }) =>
      commands.listEventProperties({ appId, event: textOf('event', event), days: daysOf(days) }),
  ],
  // A name of 1,000 characters outside of ASCII is longer than the headers of a request may be.
  [
    'post',
    '/environments/:app_id/event-properties',
    (commands, [appId = ''], { event, days }) =>
      commands.listEventProperties({ appId, event: textOf('event', event), days: daysOf(days) }),
  ],
  ['post', '/environments/:app_id/live', (commands, [appId = '']) => commands.watchLive({ appId })],
  [
    'get',
    '/environments/:app_id/live',
    (commands, [appId = ''], { place }) => commands.showLive({ appId, place: textOf('place', place) }),
  ],
  // By POST, so that no name is in a URL, which proxies log.
  [
    'post',
    '/environments/:app_id/user',
    (commands, [appId = ''], { events = true, ...user }) => {
      if (typeof events !== 'boolean') throw new AdministrationError('events must be true or false');
      return commands.lookUpUser({ appId, user, withEvents: events });
    },
  ],
  [
    'post',
    '/environments/:app_id/user/event-counts',
    (commands, [appId = ''], user) => commands.countUserEvents({ appId, user }),
  ],
  [
    'post',
    '/environments/:app_id/user/similar',
    (commands, [appId = ''], user) => commands.findSimilarUsers({ appId, user }),
  ],
  [
    'post',
    '/environments/:app_id/user/events',
    (commands, [appId = ''], { event, cursor, ...user }) =>
      commands.readUserEvents({
        appId,
        user,
        ...(event === undefined ? {} : { event: textOf('event', event) }),
        ...(cursor === undefined ? {} : { cursor: textOf('cursor', cursor) }),
      }),
  ],
  [
    'get',
    '/accounts/:account_id/user_suppression',
    (commands, [accountId = '']) => commands.showSuppressed({ accountId }),
  ],
  [
    'post',
    '/accounts/:account_id/user_suppression',
    (commands, [accountId = ''], { users, suppress }) => {
      if (typeof suppress !== 'boolean') throw new AdministrationError('suppress must be true or false');
      return suppress
        ? commands.suppressUsers({ accountId, users })
        : commands.freeUsers({ accountId, users });
    },
    bodies.adminListBytesMax,
  ],
  [
    'post',
    '/certificates/verify',
    // The text as it came, since the fields no longer show a repeated name or how a number was written.
    (commands, _, __, text) => commands.showVerified({ text }),
    bodies.adminListBytesMax,
  ],
  [
    'get',
    '/audit',
    (commands, _, { before, before_id, ...body }) =>
      commands.listAudit({ ...scopeOf(body), before: placeOf(before, before_id) }),
  ],
  ['get', '/failed', (commands) => commands.listFailed({})],
  ['post', '/failed/retry', (commands) => commands.retryFailed()],
  ['get', '/keys-index', (commands) => commands.showKeyIndex()],
  ['post', '/keys-index/rebuild', (commands) => commands.rebuildKeyIndex()],
  ['get', '/shards', (commands) => commands.listShards()],
  ['post', '/restore', (commands) => commands.restore()],
];

export function adminApiRoutes(options: AdminApiOptions): Route[] {
  return endpoints.map(([method, path, run, bytesMax = bodies.adminBytesMax]) => ({
    method,
    path: `/admin/v1${path}`,
    handle: (exchange, req) =>
      handle(options, { run, bytesMax, parameterCount: path.split(':').length - 1 }, exchange, req),
  }));
}

function handle(
  options: AdminApiOptions,
  {
    run: command,
    bytesMax,
    parameterCount,
  }: { readonly run: Run; readonly bytesMax: number; readonly parameterCount: number },
  exchange: Exchange,
  req: HttpRequest,
): void {
  const path = Array.from({ length: parameterCount }, (_, i) => decode(req.getParameter(i) ?? ''));
  const hasBody = !['get', 'delete'].includes(req.getMethod());
  const found = options.callers.find(exchange, req);
  if ('refused' in found) return refuseUnread(exchange, found.refused);
  const run = (read: () => Fields | Rejection) =>
    exchange.attend(reply(options, found.caller, exchange, command, path, read));
  if (!hasBody || exchange.framing.length === 0) {
    withoutBody(exchange);
    return run(() => (hasBody ? { fields: {}, text: '' } : parametersOf(exchange.query)));
  }
  readJsonBody(exchange, bytesMax, (bytes, owned) => {
    const kept = owned ? bytes : Buffer.from(bytes);
    run(() => fieldsOf(kept));
  });
}

function fieldsOf(bytes: Buffer): Fields | Rejection {
  const document = parseDocument(bytes);
  if ('code' in document) return document;
  const { value } = document;
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return rejection('invalid_type', 'The body must be an object.');
  const unreadable = document.surrogates ? refuseLoneSurrogates(value) : undefined;
  return unreadable ?? { fields: value as Record<string, unknown>, text: bytes.toString('utf8') };
}

function parametersOf(query: string): Fields | Rejection {
  const parameters = readParameters(query);
  return 'code' in parameters ? parameters : { fields: Object.fromEntries(parameters), text: '' };
}

/** What a request says. Apart from the reasons to refuse it, which any field may have the names of. */
type Fields = { readonly fields: Readonly<Record<string, unknown>>; readonly text: string };

/** `read` is called once the caller is known, so bodies of unknown callers are not parsed. */
async function reply(
  options: AdminApiOptions,
  lookup: Promise<AdminCaller | Refuse>,
  exchange: Exchange,
  run: Run,
  path: readonly string[],
  read: () => Fields | Rejection,
): Promise<void> {
  try {
    const caller = await lookup;
    if (typeof caller === 'function') return caller(exchange);
    const said = read();
    if ('code' in said) return exchange.refuse(said);
    const result = await run(
      options.commandsFor(caller.actor, caller.principal),
      path,
      said.fields,
      said.text,
    );
    exchange.reply(200, JSON.stringify(result), [['Cache-Control', 'no-store']]);
  } catch (error) {
    if (error instanceof AdministrationError)
      return exchange.refuse(rejection('not_possible', error.message));
    if (error instanceof Forbidden)
      return exchange.refuse(rejection('forbidden', outcomes.forbidden.meaning));
    if (error instanceof NotCopied)
      return exchange.refuse(rejection(error.holds ? 'unknown' : 'overloaded', error.message));
    if (
      error instanceof StateNotLoaded ||
      error instanceof AuditLogFull ||
      error instanceof TakesTooLong ||
      error instanceof NoRoom
    )
      return exchange.refuse(rejection('overloaded', error.message));
    if (isOwnFault(error)) throw error;
    options.log.warn({ error: describeError(error) }, 'a request of the administration failed');
    exchange.refuse(rejection('unknown', outcomes.unknown.meaning));
  }
}

/** The action before which the audit log is read: the time and the id of the last one that the caller has. */
function placeOf(at: unknown, id: unknown): { at: string; id: string } | undefined {
  if (at === undefined && id === undefined) return undefined;
  const place = { at: textOf('before', at), id: textOf('before_id', id) };
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(place.at) || Number.isNaN(Date.parse(place.at)))
    throw new AdministrationError('before must be the time of an action of the audit log');
  return place;
}

/** The account that a list is narrowed to, or that something is of. */
function scopeOf({ account_id }: Readonly<Record<string, unknown>>): { accountId?: string } {
  return account_id === undefined ? {} : { accountId: textOf('account_id', account_id) };
}

/**
 * `{main, validation, limits: {track: "none"}, allow_identities: [], disallow_identities: [], write_key,
 * import_until, retain_days, origins: []}` as settings.
 */
function settingsOf(body: Readonly<Record<string, unknown>>): EnvironmentSettings {
  const {
    main,
    validation,
    limits,
    allow_identities,
    disallow_identities,
    write_key,
    import_until,
    retain_days,
    origins,
    ...others
  } = body;
  const [unknownName] = Object.keys(others);
  if (unknownName !== undefined) throw new AdministrationError(`there is no setting ${unknownName}`);
  if (main !== undefined && main !== true) throw new AdministrationError('main can only be set to true');
  if (limits !== undefined && (typeof limits !== 'object' || limits === null))
    throw new AdministrationError('limits must be an object');
  return {
    limits: Object.fromEntries(Object.entries(limits ?? {}).map(([name, value]) => parseLimit(name, value))),
    allowIdentities: allow_identities === undefined ? [] : listOf('allow_identities', allow_identities),
    disallowIdentities:
      disallow_identities === undefined ? [] : listOf('disallow_identities', disallow_identities),
    ...(validation === undefined ? {} : { validation: parseValidation(validation) }),
    ...(origins === undefined
      ? {}
      : { origins: parseOrigins(origins === 'any' ? ['any'] : listOf('origins', origins)) }),
    ...(write_key === undefined ? {} : { writeKey: parseWriteKey(write_key) }),
    ...(import_until === undefined ? {} : { importUntilMs: parseImportUntil(import_until) }),
    ...(retain_days === undefined ? {} : { retainDays: parseRetainDays(retain_days) }),
    ...(main === undefined ? {} : { main }),
  };
}

/** How far back: a week, if nothing is said. */
function daysOf(value: unknown = '7'): number {
  const text = textOf('days', typeof value === 'number' ? String(value) : value);
  if (!/^[1-9]\d*$/.test(text) || Number(text) > administration.daysMax)
    throw new AdministrationError(`days must be a whole number from 1 to ${administration.daysMax}`);
  return Number(text);
}

function textOf(name: string, value: unknown): string {
  if (typeof value !== 'string') throw new AdministrationError(`${name} must be a string`);
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
