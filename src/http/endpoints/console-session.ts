// What the routes of signing in and of people's own access share: the request, the counting of attempts, the beginning of a session with
// its cookies, and the line of the audit log.

import { setTimeout as pause } from 'node:timers/promises';
import { type Attempt, attemptOf, bookAttempt, knownBrowser } from '../../accounts/people/attempts.js';
import type { Passwords } from '../../accounts/people/passwords.js';
import { needsSecondFactor, viewPerson } from '../../accounts/people/people.js';
import { beginSession, type Session, type SignedIn } from '../../accounts/people/sessions.js';
import type { Holder } from '../../concurrency.js';
import { AdministrationError, loaded } from '../../contract/errors.js';
import { people as bounds } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import type { Log } from '../../log.js';
import type { Redis } from '../../redis/client.js';
import { type Action, type AuditOptions, audited } from '../../registry/audit/audit.js';
import type { Person } from '../../registry/documents.js';
import { networkOf } from '../protocol/caller-address.js';
import type { Exchange, Headers } from '../protocol/exchange.js';
import { type AdminCallers, actorOf, type CookieNames } from './admin-caller.js';
import { retryAfter } from './rate-limit-headers.js';

export type SignInOptions = {
  readonly callers: AdminCallers;
  readonly redis: Redis;
  readonly passwords: Passwords;
  readonly audit: AuditOptions;
  /** The deployment's secret; undefined until it was read from Redis. */
  readonly secret: () => string | undefined;
  /** Whether cookies are sent over TLS only. */
  readonly isSecure: boolean;
  /** Whether people may sign in with an identity provider. */
  readonly hasProvider: boolean;
  readonly log: Log;
};

export type Fields = Readonly<Record<string, unknown>>;

/** What a request says outside its body; read before the handler returns. */
export type Request = {
  readonly exchange: Exchange;
  readonly address: string;
  readonly agent: string;
  readonly names: CookieNames;
  /** The secrets of the session and of the known browser. */
  readonly cookie: string | undefined;
  readonly known: string | undefined;
  readonly parameter: string;
};

export type Answer = { readonly body: object; readonly headers?: Headers };

/** A handler for everybody, or for a person who is signed in. */
export type Open = (options: SignInOptions, request: Request, fields: Fields) => Promise<Answer | undefined>;
export type Own = (
  options: SignInOptions,
  request: Request,
  fields: Fields,
  signedIn: SignedIn,
) => Promise<Answer | undefined>;

export async function begin(
  options: SignInOptions,
  { address, agent, names }: Request,
  person: Person,
): Promise<Answer> {
  const { secret, session } = await beginSession(options.redis, person, { address, agent });
  const browser = knownBrowser(loaded(options.secret()), person);
  return {
    body: await sessionView(options.redis, person, session),
    headers: [
      cookieOf(options, names.session, secret, bounds.sessionMs),
      cookieOf(options, names.browser, browser, bounds.browserMs),
    ],
  };
}

export async function sessionView(redis: Redis, person: Person, session: Session) {
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

/** Does work with a line in the audit log, in the person's own name. If the work has no result, it counts as refused. */
export function underAudit(
  { audit }: SignInOptions,
  person: Person,
  { address }: Request,
  action: Action['action'],
  work: () => Promise<Answer | undefined>,
): Promise<Answer | undefined> {
  return audited(
    audit,
    actorOf(person, address),
    { action, account_id: person.account_id, details: {} },
    work,
    { endingOf: (answer) => ({ outcome: answer === undefined ? 'refused' : 'done' }) },
  );
}

/**
 * Counts an attempt to sign in or to prove a password, and waits as long as this attempt has to. Settles with undefined if there were too
 * many attempts and this one was refused.
 */
export async function countAttempt(
  options: SignInOptions,
  { exchange, known, address }: Request,
  email: string,
  person: Person | undefined,
): Promise<Attempt | undefined> {
  const attempt = attemptOf(loaded(options.secret()), { email, person, known, network: networkOf(address) });
  const booked = await bookAttempt(options.redis, attempt);
  if ('refusedMs' in booked) return void refuseForNow(exchange, booked.refusedMs);
  await pause(booked.waitMs);
  return attempt;
}

/** Whose turn it takes to hash a password. */
export function turnOf({ address }: Request, email: string): Holder {
  return { account: networkOf(address), person: email };
}

function refuseForNow(exchange: Exchange, ms: number): void {
  exchange.refuse(
    rejection('rate_limited', 'Too many wrong passwords. Wait a moment and try again.'),
    {},
    retryAfter(ms / 1000),
  );
}

export function textOf(fields: Fields, name: string): string {
  const value = fields[name];
  if (typeof value !== 'string' || value === '' || value.length > bounds.fieldMax)
    throw new AdministrationError(`${name} must be a string`);
  return value;
}

export function newPasswordOf(fields: Fields, name: string): string {
  const password = textOf(fields, name);
  const { passwordLengthMin: min, passwordLengthMax: max } = bounds;
  const length = [...password].length;
  if (length < min || length > max)
    throw new AdministrationError(`a password must have ${min} to ${max} characters`);
  return password;
}
