// Signing in to the console, and what people do with their own access: /admin/v1/session, invitation, sessions, password and second_factor
// on ADMIN_PORT. All of it is for pages of the console only.

import type { HttpRequest } from 'uWebSockets.js';
import { administrationAnswers as answers } from '../../contract/administration-answers.js';
import { bodies } from '../../contract/limits.js';
import { type Schema, Type } from '../../contract/typebox.js';
import { parseDocument } from '../../parsing/document.js';
import { adminOperation, adminTags } from '../openapi/administration.js';
import { readJsonBody } from '../protocol/body.js';
import type { Exchange } from '../protocol/exchange.js';
import { attendOrRefuse } from '../protocol/failed.js';
import type { Guard } from '../protocol/guard.js';
import type { Method, Route } from '../protocol/server.js';
import {
  adminGuard,
  cookieNamesOf,
  failingAdministration,
  readCookie,
  sessionEnded,
} from './admin-caller.js';
import type { Answer, Fields, Open, Own, Request, SignInOptions } from './console-session.js';
import {
  changeOwnPassword,
  endOwnSession,
  listOwnSessions,
  offerSecondFactor,
  removeSecondFactor,
  setSecondFactor,
  signOut,
} from './own-access.js';
import { accept, showInvitation, showSession, signIn } from './sign-in.js';

/** An operation, what it takes in its body, and who may call it: everybody, or a person who is signed in. */
type Endpoint = {
  readonly id: keyof typeof answers;
  readonly summary: string;
  readonly given?: Readonly<Record<string, Schema>>;
} & ({ readonly open: Open; readonly own?: never } | { readonly own: Own; readonly open?: never });

const text = Type.String();
const optionalCode = Type.Optional(Type.String({ description: 'Of the second factor.' }));

/** By `METHOD /path`. */
const endpoints: Readonly<Record<string, Endpoint>> = {
  'POST /session': {
    id: 'signIn',
    summary: 'Sign in: sets the cookie of a session',
    given: { email: text, password: text, code: optionalCode },
    open: signIn,
  },
  'GET /session': {
    id: 'showSession',
    summary: 'Who is signed in; person is null if no person is',
    open: showSession,
  },
  'DELETE /session': { id: 'signOut', summary: 'Sign out', own: signOut },
  'POST /invitation': {
    id: 'showInvitation',
    summary: 'Whom an invitation is for',
    given: { invitation: text },
    open: showInvitation,
  },
  'POST /invitation/accept': {
    id: 'acceptInvitation',
    summary: 'Choose a password and sign in',
    given: { invitation: text, password: text },
    open: accept,
  },
  'GET /sessions': { id: 'listSessions', summary: 'Your sessions', own: listOwnSessions },
  'DELETE /sessions/:id': { id: 'endSession', summary: 'End one of your sessions', own: endOwnSession },
  'PUT /password': {
    id: 'changePassword',
    summary: 'Choose another password; other sessions end',
    given: { password: text, new_password: text },
    own: changeOwnPassword,
  },
  'POST /second_factor': {
    id: 'offerSecondFactor',
    summary: 'A new secret for an app; nothing is kept',
    own: offerSecondFactor,
  },
  'PUT /second_factor': {
    id: 'setSecondFactor',
    summary: 'Turn the second factor on',
    given: { password: text, secret: text, code: text },
    own: setSecondFactor,
  },
  'DELETE /second_factor': {
    id: 'removeSecondFactor',
    summary: 'Turn the second factor off',
    given: { password: text },
    own: removeSecondFactor,
  },
};

export function signInRoutes(options: SignInOptions): Route[] {
  return Object.entries(endpoints).map(([route, endpoint]) => routeOf(options, route, endpoint));
}

/** Open to everybody, but only from a page of the console. */
const openGuard: Guard = { ...adminGuard, security: [{}], refuses: [...adminGuard.refuses, 'rate_limited'] };
const ownGuard: Guard = { ...adminGuard, security: [{ session: [] }] };

function routeOf(
  options: SignInOptions,
  route: string,
  { id, summary, given = {}, open, own }: Endpoint,
): Route {
  const [method = '', path = ''] = route.toLowerCase().split(' ');
  const handle = (exchange: Exchange, req: HttpRequest) => {
    const names = cookieNamesOf(req);
    const request: Request = {
      exchange,
      names,
      address: exchange.address,
      agent: req.getHeader('user-agent'),
      cookie: readCookie(req, names.session),
      known: readCookie(req, names.browser),
      parameter: path.includes(':') ? (req.getParameter(0) ?? '') : '',
    };
    const fault = options.callers.faultOfPage(req);
    if (fault !== undefined) return fault(exchange.dropBody());
    const found = own === undefined ? undefined : options.callers.find(exchange, req, 'own_access');
    if (found !== undefined && 'refused' in found) return sessionEnded(exchange.dropBody());
    const run = async (fields: Fields) => {
      if (own === undefined) return open(options, request, fields);
      const caller = await found?.caller;
      if (typeof caller === 'function') return void caller(exchange);
      // ADMIN_TOKEN belongs to no person.
      if (caller?.signedIn === undefined) return void sessionEnded(exchange);
      return own(options, request, fields, caller.signedIn);
    };
    if (method === 'get' || exchange.framing.length === 0) {
      exchange.dropBody();
      return answerOrFail(options, exchange, () => run({}));
    }
    readJsonBody(exchange, bodies.accessBytesMax, (_, bytes) => {
      const document = parseDocument(bytes);
      if ('code' in document) return exchange.refuse(document);
      const { value } = document;
      const fields = typeof value === 'object' && value !== null ? (value as Fields) : {};
      answerOrFail(options, exchange, () => run(fields));
    });
  };
  const tag = own === undefined ? adminTags.open : adminTags.self;
  const doc = { id, tag, summary, description: 'For pages of the console.', given, answer: answers[id] };
  return {
    method: (method === 'delete' ? 'del' : method) as Method,
    path: `/admin/v1${path}`,
    handle,
    doc: adminOperation(route, doc, own === undefined ? openGuard : ownGuard),
  };
}

function answerOrFail(
  { log }: SignInOptions,
  exchange: Exchange,
  work: () => Promise<Answer | undefined>,
): void {
  const answered = work().then((answer) => {
    if (answer === undefined) return;
    const headers = answer.headers ?? [];
    exchange.reply(200, JSON.stringify(answer.body), [['Cache-Control', 'no-store'], ...headers]);
  });
  attendOrRefuse(exchange, failingAdministration(log), answered);
}
