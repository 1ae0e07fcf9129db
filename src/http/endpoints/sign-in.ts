// Signing in to the console, and what people do with their own access: /admin/v1/session, invitation, sessions, password
// and second_factor on ADMIN_PORT. Everything here is for pages of the console only.

import type { HttpRequest } from 'uWebSockets.js';
import { setTimeout as pause } from 'node:timers/promises';
import { attemptOf, bookAttempt, forgiveAttempt, knownBrowser } from '../../accounts/people/attempts.js';
import type { Passwords } from '../../accounts/people/passwords.js';
import {
  acceptInvitation,
  changePassword,
  changeSecondFactor,
  findInvited,
  findPerson,
  needsSecondFactor,
  viewPerson,
} from '../../accounts/people/people.js';
import { isSecret, newSecret, useCode } from '../../accounts/people/second-factor.js';
import {
  beginSession,
  endSession,
  findSession,
  listSessions,
  type Session,
  type SignedIn,
} from '../../accounts/people/sessions.js';
import { administrationAnswers as answers } from '../../contract/administration-answers.js';
import { AdministrationError, StateNotLoaded } from '../../contract/errors.js';
import { bodies, people as bounds } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import { type Schema, Type } from '../../contract/typebox.js';
import type { Log } from '../../log.js';
import { parseDocument } from '../../parsing/document.js';
import type { Redis } from '../../redis/client.js';
import { type Action, type AuditOptions, audited } from '../../registry/audit/audit.js';
import type { Person, SecondFactor } from '../../registry/documents.js';
import { adminOperation, adminTags } from '../openapi/administration.js';
import { readJsonBody } from '../protocol/body.js';
import { networkOf } from '../protocol/caller-address.js';
import type { Exchange, Headers } from '../protocol/exchange.js';
import { attendOrRefuse } from '../protocol/failed.js';
import type { Guard } from '../protocol/guard.js';
import { type Method, type Route, withoutBody } from '../protocol/server.js';
import {
  type AdminCallers,
  actorOf,
  adminGuard,
  type CookieNames,
  cookieNamesOf,
  failingAdministration,
  readCookie,
  sessionEnded,
} from './admin-caller.js';

export type SignInOptions = {
  readonly callers: AdminCallers;
  readonly redis: Redis;
  readonly passwords: Passwords;
  readonly audit: AuditOptions;
  /** The deployment's secret; undefined until it was read from Redis. */
  readonly secret: () => string | undefined;
  /** Whether cookies are sent over TLS only. */
  readonly isSecure: boolean;
  /** Whether people may come from a provider. */
  readonly hasProvider: boolean;
  readonly clock?: () => number;
  readonly log: Log;
};

type Fields = Readonly<Record<string, unknown>>;

/** What a request says besides its body; read before the handler returns. */
type Request = {
  readonly exchange: Exchange;
  readonly address: string;
  readonly agent: string;
  readonly names: CookieNames;
  /** The secrets of the session and of the known browser. */
  readonly cookie: string | undefined;
  readonly known: string | undefined;
  readonly parameter: string;
};

type Answer = { readonly body: object; readonly headers?: Headers };

/** For everybody, or for a person who is signed in. */
type Open = (options: SignInOptions, request: Request, fields: Fields) => Promise<Answer | undefined>;
type Own = (
  options: SignInOptions,
  request: Request,
  fields: Fields,
  signedIn: SignedIn,
) => Promise<Answer | undefined>;

/** A route: its `METHOD /path`, its operation, and what it takes in its body. */
type Endpoint = {
  readonly route: string;
  readonly id: keyof typeof answers;
  readonly summary: string;
  readonly given?: Readonly<Record<string, Schema>>;
};

const text = Type.String();

export function signInRoutes(options: SignInOptions): Route[] {
  const open = (endpoint: Endpoint, run: Open) => routeOf(options, endpoint, { open: run });
  const own = (endpoint: Endpoint, run: Own) => routeOf(options, endpoint, { own: run });
  return [
    open(
      {
        route: 'POST /session',
        id: 'signIn',
        summary: 'Sign in: sets the cookie of a session',
        given: {
          email: text,
          password: text,
          code: Type.Optional(Type.String({ description: 'Of the second factor.' })),
        },
      },
      signIn,
    ),
    open(
      {
        route: 'GET /session',
        id: 'showSession',
        summary: 'Who is signed in; person is null if no person is',
      },
      showSession,
    ),
    own({ route: 'DELETE /session', id: 'signOut', summary: 'Sign out' }, signOut),
    open(
      {
        route: 'POST /invitation',
        id: 'showInvitation',
        summary: 'Whom an invitation is for',
        given: { invitation: text },
      },
      showInvitation,
    ),
    open(
      {
        route: 'POST /invitation/accept',
        id: 'acceptInvitation',
        summary: 'Choose a password and sign in',
        given: { invitation: text, password: text },
      },
      accept,
    ),
    own({ route: 'GET /sessions', id: 'listSessions', summary: 'The own sessions' }, showSessions),
    own({ route: 'DELETE /sessions/:id', id: 'endSession', summary: 'End an own session' }, endOne),
    own(
      {
        route: 'PUT /password',
        id: 'changePassword',
        summary: 'Choose another password; other sessions end',
        given: { password: text, new_password: text },
      },
      setPassword,
    ),
    own(
      {
        route: 'POST /second_factor',
        id: 'offerSecondFactor',
        summary: 'A new secret for an app; nothing is kept',
      },
      offerSecondFactor,
    ),
    own(
      {
        route: 'PUT /second_factor',
        id: 'setSecondFactor',
        summary: 'Turn the second factor on',
        given: { password: text, secret: text, code: text },
      },
      setSecondFactor,
    ),
    own(
      {
        route: 'DELETE /second_factor',
        id: 'removeSecondFactor',
        summary: 'Turn the second factor off',
        given: { password: text },
      },
      removeSecondFactor,
    ),
  ];
}

/** Everybody, from a page of the console; and the person who is signed in. */
const openGuard: Guard = { ...adminGuard, security: [{}], refuses: [...adminGuard.refuses, 'rate_limited'] };
const ownGuard: Guard = { ...adminGuard, security: [{ session: [] }] };

function routeOf(
  options: SignInOptions,
  { route, id, summary, given = {} }: Endpoint,
  { open, own }: { readonly open?: Open; readonly own?: Own },
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
    if (fault !== undefined) return fault(withoutBody(exchange));
    const found = own === undefined ? undefined : options.callers.find(exchange, req, 'own_access');
    if (found !== undefined && 'refused' in found) return sessionEnded(withoutBody(exchange));
    const run = async (fields: Fields) => {
      if (own === undefined || found === undefined) return open?.(options, request, fields);
      const caller = await found.caller;
      if (typeof caller === 'function') return void caller(exchange);
      // ADMIN_TOKEN belongs to no person.
      if (caller.signedIn === undefined) return void sessionEnded(exchange);
      return own(options, request, fields, caller.signedIn);
    };
    if (method === 'get' || exchange.framing.length === 0) {
      withoutBody(exchange);
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

const signIn: Open = async (options, request, fields) => {
  const { redis } = options;
  const email = textOf(fields, 'email').trim().toLowerCase();
  const password = textOf(fields, 'password');
  const secret = secretOf(options);
  const person = email.includes('@') ? await findPerson(redis, email) : undefined;
  const attempt = attemptOf(secret, {
    email,
    person,
    known: request.known,
    network: networkOf(request.address),
  });
  const booked = await bookAttempt(redis, attempt);
  if ('refusedMs' in booked) return void refuseForNow(request.exchange, booked.refusedMs);
  await pause(booked.waitMs);
  const isRight = await options.passwords.verify(person?.password?.hash, password);
  if (person === undefined) return void refuseWrong(request.exchange);
  return underAudit(options, person, request, 'sign_in', async () => {
    if (!isRight) return void refuseWrong(request.exchange);
    const code = fields.code === undefined ? undefined : textOf(fields, 'code');
    if (person.second_factor !== undefined && code === undefined)
      return void refuseWrong(request.exchange, 'A code from your second factor is needed.', 'needed');
    if (!(await hasRightCode(options, person, code)))
      return void refuseWrong(request.exchange, 'This code is wrong or was used before.', 'wrong');
    await forgiveAttempt(redis, attempt);
    return begin(options, request, person);
  });
};

/** 200 without a session too: a page asks before it knows whether a person is signed in. */
const showSession: Open = async ({ redis, hasProvider }, { cookie: secret }) => {
  const found = secret === undefined ? undefined : await findSession(redis, secret);
  const shown =
    found === undefined ? { person: null } : await sessionView(redis, found.person, found.session);
  return { body: { ...shown, single_sign_on: hasProvider } };
};

const signOut: Own = async (options, request, _fields, { person, session }) =>
  underAudit(options, person, request, 'sign_out', async () => {
    await endSession(options.redis, person.person_id, session.id);
    return { body: {}, headers: [cookieOf(options, request.names.session, '', 0)] };
  });

const showInvitation: Open = async ({ redis }, _request, fields) => {
  const invited = await findInvited(redis, textOf(fields, 'invitation'));
  if (invited === undefined) throw new AdministrationError(usedUp);
  const { email, role } = invited;
  return { body: { email, role, password_length_min: bounds.passwordLengthMin } };
};

const accept: Open = async (options, request, fields) => {
  const { redis, passwords } = options;
  const invitation = textOf(fields, 'invitation');
  const password = newPasswordOf(fields, 'password');
  // A password is hashed only for a caller who has a link.
  const invited = await findInvited(redis, invitation);
  if (invited === undefined) throw new AdministrationError(usedUp);
  return underAudit(options, invited, request, 'accept_invitation', async () => {
    const person = await acceptInvitation(redis, invitation, await passwords.hash(password));
    if (person === undefined) throw new AdministrationError(usedUp);
    return begin(options, request, person);
  });
};

const showSessions: Own = async ({ redis }, _request, _fields, { person, session }) => {
  const sessions = await listSessions(redis, person);
  return {
    body: sessions.map(({ person_id: _, password_id: __, ...shown }) => ({
      ...shown,
      this_one: shown.id === session.id,
    })),
  };
};

const endOne: Own = async (options, request, _fields, { person }) =>
  underAudit(options, person, request, 'end_session', async () => {
    if (!(await endSession(options.redis, person.person_id, request.parameter)))
      throw new AdministrationError('there is no such session');
    return { body: { id: request.parameter, ended: true } };
  });

const setPassword: Own = async (options, request, fields, signedIn) => {
  const chosen = newPasswordOf(fields, 'new_password');
  return withPassword(options, request, fields, signedIn, 'change_password', async (person) => {
    const changed = await changePassword(options.redis, person, await options.passwords.hash(chosen));
    if (changed === undefined) throw new AdministrationError(overtaken);
    return begin(options, request, changed);
  });
};

const offerSecondFactor: Own = async (_options, _request, _fields, { person }) => {
  requirePassword(person);
  return { body: newSecret(person.email) };
};

const setSecondFactor: Own = async (options, request, fields, signedIn) => {
  const secret = textOf(fields, 'secret');
  const code = textOf(fields, 'code');
  if (!isSecret(secret)) throw new AdministrationError('secret must be one that was offered');
  return withPassword(options, request, fields, signedIn, 'set_second_factor', async (person) => {
    const next = useCode({ secret, last_code: 0 }, code, now(options));
    if (next === undefined) throw new AdministrationError('this code does not belong to the secret');
    return { body: await replaceSecondFactor(options, person, next) };
  });
};

const removeSecondFactor: Own = (options, request, fields, signedIn) =>
  withPassword(options, request, fields, signedIn, 'remove_second_factor', async (person) => ({
    body: await replaceSecondFactor(options, person, undefined),
  }));

async function replaceSecondFactor({ redis }: SignInOptions, person: Person, next: SecondFactor | undefined) {
  const changed = await changeSecondFactor(redis, person.person_id, person.second_factor, next);
  if (changed === undefined) throw new AdministrationError(overtaken);
  return { second_factor: next !== undefined };
}

/** Does work that needs the password again, so that an open browser does not suffice. */
async function withPassword(
  options: SignInOptions,
  request: Request,
  fields: Fields,
  { person }: SignedIn,
  action: Action['action'],
  work: (person: Person) => Promise<Answer>,
): Promise<Answer | undefined> {
  requirePassword(person);
  const { known, address } = request;
  const by = { email: person.email, person, known, network: networkOf(address) };
  const attempt = attemptOf(secretOf(options), by);
  const booked = await bookAttempt(options.redis, attempt);
  if ('refusedMs' in booked) return void refuseForNow(request.exchange, booked.refusedMs);
  await pause(booked.waitMs);
  return underAudit(options, person, request, action, async () => {
    if (!(await options.passwords.verify(person.password?.hash, textOf(fields, 'password'))))
      throw new AdministrationError('this is not your password');
    await forgiveAttempt(options.redis, attempt);
    return work(person);
  });
}

/** People who sign in with a provider have no password here. */
function requirePassword({ password }: Person): void {
  if (password === undefined)
    throw new AdministrationError(
      'you sign in with your provider, which keeps your password and second factor',
    );
}

/** Uses the code up; true if the person has no second factor. */
async function hasRightCode(options: SignInOptions, person: Person, code = ''): Promise<boolean> {
  const { second_factor: factor } = person;
  if (factor === undefined) return true;
  const next = useCode(factor, code, now(options));
  if (next === undefined) return false;
  // If the same code is used twice at once, one of the two finds it used.
  return (await changeSecondFactor(options.redis, person.person_id, factor, next)) !== undefined;
}

async function begin(
  options: SignInOptions,
  { address, agent, names }: Request,
  person: Person,
): Promise<Answer> {
  const { secret, session } = await beginSession(options.redis, person, { address, agent });
  const browser = knownBrowser(secretOf(options), person);
  return {
    body: await sessionView(options.redis, person, session),
    headers: [
      cookieOf(options, names.session, secret, bounds.sessionMs),
      cookieOf(options, names.browser, browser, bounds.browserMs),
    ],
  };
}

async function sessionView(redis: Redis, person: Person, session: Session) {
  const needs = (await needsSecondFactor(redis, person)) ? { needs_second_factor: true } : {};
  const view = { ...viewPerson(person, Date.now()), ...needs };
  return { person: view, session_id: session.id, ends_at: session.ends_at };
}

/** A cookie that no script can read, and that only our own pages send. */
export function cookieOf(
  { isSecure }: Pick<SignInOptions, 'isSecure'>,
  name: string,
  value: string,
  maxAgeMs: number,
) {
  const attributes = [
    `Max-Age=${Math.floor(maxAgeMs / 1000)}`,
    'Path=/admin/v1',
    'HttpOnly',
    'SameSite=Strict',
    ...(isSecure ? ['Secure'] : []),
  ];
  return ['Set-Cookie', [`${name}=${value}`, ...attributes].join('; ')] as const;
}

/** Does work with a line in the audit log, in the person's own name. Without a result the request was refused. */
function underAudit(
  { audit }: SignInOptions,
  person: Person,
  { address }: Request,
  action: Action['action'],
  work: () => Promise<Answer | undefined>,
): Promise<Answer | undefined> {
  const { account_id } = person;
  return audited(
    audit,
    actorOf(person, address),
    { action, ...(account_id === undefined ? {} : { account_id }), details: {} },
    work,
    {
      endingOf: (answer) => ({ outcome: answer === undefined ? 'refused' : 'done' }),
      outcomeOfError: (error) => (error instanceof AdministrationError ? 'refused' : 'unknown'),
    },
  );
}

function refuseWrong(
  exchange: Exchange,
  message = 'The e-mail address or the password is wrong.',
  secondFactor?: 'needed' | 'wrong',
): void {
  const more = secondFactor === undefined ? {} : { second_factor: secondFactor };
  const reason = rejection('unauthorized', message);
  exchange.refuse(reason, { error: message, message, ...more }, [
    ['WWW-Authenticate', 'Session realm="sluice-console"'],
  ]);
}

function refuseForNow(exchange: Exchange, ms: number): void {
  exchange.refuse(rejection('rate_limited', 'Too many wrong passwords. Wait a moment and try again.'), {}, [
    ['Retry-After', String(Math.ceil(ms / 1000))],
  ]);
}

function secretOf(options: SignInOptions): string {
  const secret = options.secret();
  if (secret === undefined) throw new StateNotLoaded();
  return secret;
}

function now({ clock = Date.now }: SignInOptions): number {
  return clock();
}

const usedUp = 'This invitation was used, has ended, or was replaced by a later one. Ask for another one.';
const overtaken = 'somebody changed this at the same time: try again';

function textOf(fields: Fields, name: string): string {
  const value = fields[name];
  if (typeof value !== 'string' || value === '' || value.length > bounds.fieldMax)
    throw new AdministrationError(`${name} must be a string`);
  return value;
}

function newPasswordOf(fields: Fields, name: string): string {
  const password = textOf(fields, name);
  const { passwordLengthMin: min, passwordLengthMax: max } = bounds;
  const length = [...password].length;
  if (length < min || length > max)
    throw new AdministrationError(`a password must have ${min} to ${max} characters`);
  return password;
}
