// The administration over HTTP, /admin/v1 on ADMIN_PORT: the administrators' commands, for programs with `Authorization: Bearer
// ADMIN_TOKEN`, and for people who are signed in to the console, within the rights of their roles.

import type { HttpRequest } from 'uWebSockets.js';
import type { Principal } from '../../admin/access.js';
import type { Administration } from '../../admin/administration.js';
import { type Command, type Fields, isNotSent, routesOf, shapeOf } from '../../admin/command.js';
import { type CommandName, namedCommands } from '../../admin/commands.js';
import { administration, bodies } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import type { Log } from '../../log.js';
import { parseDocument } from '../../parsing/document.js';
import { refuseLoneSurrogates } from '../../parsing/explain.js';
import type { Actor } from '../../registry/audit/audit.js';
import { commandDoc } from '../openapi/administration.js';
import { readJsonBody } from '../protocol/body.js';
import type { Exchange } from '../protocol/exchange.js';
import { attendOrRefuse } from '../protocol/failed.js';
import { readParameters } from '../protocol/query.js';
import type { Method, Route } from '../protocol/server.js';
import {
  type AdminCaller,
  type AdminCallers,
  adminGuard,
  failingAdministration,
  type Refuse,
  refuseUnread,
  rolesText,
} from './admin-caller.js';

export type AdminApiOptions = {
  readonly callers: AdminCallers;
  readonly administrationFor: (actor: Actor, principal: Principal) => Administration;
  readonly log: Log;
};

export function adminApiRoutes(options: AdminApiOptions): Route[] {
  return namedCommands.flatMap(([name, command]) =>
    routesOf(name, command).map(([route, id]): Route => {
      const [method = '', path = ''] = route.toLowerCase().split(' ');
      const inPath = [...path.matchAll(/:(\w+)/g)].map(([, parameter]) => String(parameter));
      return {
        method: (method === 'delete' ? 'del' : method) as Method,
        path: `/admin/v1${path}`,
        doc: commandDoc(route, id, [name, command], adminGuard, rolesText(command.may)),
        handle: (exchange, req) => handle(options, name, command, inPath, exchange, req),
      };
    }),
  );
}

function handle(
  options: AdminApiOptions,
  name: CommandName,
  command: Command,
  inPath: readonly string[],
  exchange: Exchange,
  req: HttpRequest,
): void {
  const path = Object.fromEntries(inPath.map((field, i) => [field, decode(req.getParameter(i) ?? '')]));
  const hasBody = !['get', 'delete'].includes(req.getMethod());
  const found = options.callers.find(exchange, req);
  if ('refused' in found) return refuseUnread(exchange, found.refused);
  const { textOfBody, bodyBytesMax = bodies.adminBytesMax } = command;
  const run = (read: () => Content | Rejection) => {
    const give = async ({ actor, principal }: AdminCaller) => {
      const content = read();
      if ('code' in content) return exchange.refuse(content);
      const ofRequest = Object.entries(content.fields).filter(([field]) => !isNotSent(command, field));
      const text = textOfBody === undefined ? {} : { [textOfBody]: content.text };
      const fields: Fields = { ...Object.fromEntries(ofRequest), ...text, ...path };
      const result = await options.administrationFor(actor, principal).run(name, fields);
      exchange.reply(200, JSON.stringify(result), [['Cache-Control', 'no-store']]);
    };
    attendOrRefuse(exchange, failingAdministration(options.log), reply(found.caller, exchange, give));
  };
  if (!hasBody || exchange.framing.length === 0) {
    exchange.dropBody();
    return run(() => (hasBody ? { fields: {}, text: '' } : parametersOf(command, exchange.query)));
  }
  readJsonBody(exchange, bodyBytesMax, (_, bytes, owned) => {
    const kept = owned ? bytes : Buffer.from(bytes);
    run(() => fieldsOf(kept));
  });
}

/** Calls `give` once the caller is known, so bodies of unknown callers are not parsed. */
async function reply(
  lookup: Promise<AdminCaller | Refuse>,
  exchange: Exchange,
  give: (caller: AdminCaller) => Promise<void>,
): Promise<void> {
  const caller = await lookup;
  if (typeof caller === 'function') return caller(exchange);
  await give(caller);
}

/** The content of a request. The fields are nested, so that a field named `code` is not mistaken for a refusal. */
type Content = { readonly fields: Fields; readonly text: string };

function fieldsOf(bytes: Buffer): Content | Rejection {
  const document = parseDocument(bytes);
  if ('code' in document) return document;
  const { value } = document;
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return rejection('invalid_type', 'The body must be an object.');
  const unreadable = document.surrogates ? refuseLoneSurrogates(value) : undefined;
  return unreadable ?? { fields: value as Fields, text: bytes.toString('utf8') };
}

/**
 * The parameters of a query. Refuses those that it does not take: otherwise a misspelt filter would return an unfiltered list, and the `id`
 * of a key that belongs into the path would end all keys.
 */
function parametersOf(command: Command, query: string): Content | Rejection {
  const parameters = readParameters(query);
  if ('code' in parameters) return parameters;
  const known = Object.keys(shapeOf(command)).filter((name) => !isNotSent(command, name));
  const other = [...parameters.keys()].find((name) => !known.includes(name));
  if (other === undefined) return { fields: Object.fromEntries(parameters), text: '' };
  const field = other.slice(0, administration.nameMax);
  return rejection(
    'invalid_parameter',
    `There is no such parameter; the parameters are: ${known.join(', ') || 'none'}.`,
    field,
  );
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
