// Who calls the administration: a program with ADMIN_TOKEN or a key of its own, or a person with a session cookie. A browser sends the
// cookie with requests from any page. So a request that relies on it has to come from a page of the console, under one of our host names,
// and has to carry a header that no form can set.

import type { HttpRequest } from 'uWebSockets.js';
import { needsSecondFactor } from '../../accounts/people/people.js';
import { findSession, type SignedIn } from '../../accounts/people/sessions.js';
import { operator, type Principal } from '../../admin/access.js';
import { rejection } from '../../contract/outcomes.js';
import { type Allowed, mayDo, roles } from '../../contract/roles.js';
import type { Log } from '../../log.js';
import type { Redis } from '../../redis/client.js';
import type { Actor } from '../../registry/audit/audit.js';
import type { Person } from '../../registry/documents.js';
import type { Environments } from '../../registry/environments.js';
import { hashSecret } from '../../registry/secrets.js';
import { adminTags } from '../openapi/administration.js';
import { isAdministrator, readBearer, refuseUnauthorized } from '../protocol/authorization.js';
import type { Exchange } from '../protocol/exchange.js';
import type { Failing } from '../protocol/failed.js';
import type { Guard } from '../protocol/guard.js';
import { isOwnHost, isSameOrigin } from '../protocol/same-origin.js';
import type { WrongTokens } from '../protocol/wrong-tokens.js';

export type AdminCaller = {
  readonly actor: Actor;
  readonly principal: Principal;
  /** Only for a person. */
  readonly signedIn?: SignedIn;
  /** Looks the caller up again, during long work. Settles with undefined once the session or the key has ended; ADMIN_TOKEN never ends. */
  readonly again: () => Promise<AdminCaller | undefined>;
};

export type Refuse = (exchange: Exchange) => void;

/** `refused` is set at once, so the body is not read; `caller` settles when Redis has answered. */
export type Found =
  | { readonly refused: Promise<Refuse> }
  | { readonly caller: Promise<AdminCaller | Refuse> };

export type AdminCallers = {
  /**
   * Identifies the caller of a request. Reads the headers before it returns. A person who lacks the second factor that their account
   * requires may only use the routes of their own access, where they can set it up.
   */
  find(exchange: Exchange, req: HttpRequest, of?: 'own_access'): Found;
  /** Why a page may not call: it is not one of ours, or it uses a host name that is not ours. */
  faultOfPage(req: HttpRequest): Refuse | undefined;
  /** Why a browser may not use this host name. */
  faultOfName(req: HttpRequest): Refuse | undefined;
};

export type CallerOptions = {
  readonly adminToken: string;
  readonly adminBaseUrl: string;
  readonly adminHost: string;
  readonly redis: Redis;
  readonly environments: Pick<Environments, 'ofProgramKey'>;
  readonly wrongTokens: WrongTokens;
};

export type CookieNames = Readonly<Record<'session' | 'browser' | 'attempt', string>>;

/**
 * Browsers send a cookie to every port of a host, so the cookies' names contain the port that the browser calls. Another console on this
 * host, or at the other end of a tunnel, then has its own cookies.
 */
export function cookieNamesOf(req: HttpRequest): CookieNames {
  const port = /:(\d+)$/.exec(req.getHeader('host'))?.[1];
  const suffix = port === undefined ? '' : `_${port}`;
  return {
    session: `sluice_session${suffix}`,
    browser: `sluice_browser${suffix}`,
    attempt: `sluice_sign_on${suffix}`,
  };
}

export function createAdminCallers(options: CallerOptions): AdminCallers {
  const { adminToken, adminBaseUrl, adminHost, redis, environments, wrongTokens } = options;
  const callerOfKey = (key: string, address: string): AdminCaller | undefined => {
    const program = environments.ofProgramKey(key);
    if (program === undefined) return undefined;
    const { id, role, accountId } = program;
    return {
      actor: { kind: 'program_key', name: id, address },
      principal: role === 'operator' ? operator : { role, accountId },
      again: async () => callerOfKey(key, address),
    };
  };
  const names = [adminHost, new URL(adminBaseUrl).hostname];
  const wrongName: Refuse = (exchange) =>
    exchange.refuse(
      rejection('forbidden', `The console is at ${adminBaseUrl}. To use another name, set ADMIN_BASE_URL.`),
    );
  const faultOfPage = (req: HttpRequest) => {
    if (!isOwnHost(req, names)) return wrongName;
    const isOwn =
      isSameOrigin(req, adminBaseUrl) &&
      (req.getMethod() === 'get' || req.getHeader('sluice-console') === '1');
    return isOwn ? undefined : foreignPage;
  };
  return {
    faultOfPage,
    faultOfName: (req) => (isOwnHost(req, names) ? undefined : wrongName),
    find: (exchange, req, of) => {
      const { authorization } = exchange.framing;
      const cookie = readCookie(req, cookieNamesOf(req).session);
      const { address } = exchange;
      if (authorization === undefined && cookie !== undefined) {
        const fault = faultOfPage(req);
        if (fault !== undefined) return { refused: Promise.resolve(fault) };
        const caller = findCaller(redis, cookie, address).then((known) =>
          known === undefined
            ? sessionEnded
            : known.principal === ownAccessOnly && of !== 'own_access'
              ? secondFactorRequired
              : known,
        );
        // The handler deals with a rejection after the body.
        caller.catch(() => undefined);
        return { caller };
      }
      const secret = readBearer(authorization);
      const caller =
        secret === undefined
          ? undefined
          : (administratorOf(adminToken, secret, address) ?? callerOfKey(secret, address));
      if (caller !== undefined) return { caller: Promise.resolve(caller) };
      return { refused: wrongTokens.delay().then(() => wrongToken) };
    },
  };
}

/** Who sent ADMIN_TOKEN; undefined for any other token. */
export function administratorOf(adminToken: string, token: string, address: string): AdminCaller | undefined {
  if (!isAdministrator(adminToken, token)) return undefined;
  const actor: Actor = { kind: 'admin_token', name: fingerprintOf(adminToken), address };
  const caller: AdminCaller = { actor, principal: operator, again: async () => caller };
  return caller;
}

/** The person whose session a cookie is; undefined once it has ended. */
export async function findCaller(
  redis: Redis,
  cookie: string,
  address: string,
): Promise<AdminCaller | undefined> {
  const signedIn = await findSession(redis, cookie);
  if (signedIn === undefined) return undefined;
  const { person } = signedIn;
  const again = () => findCaller(redis, cookie, address);
  const principal = (await needsSecondFactor(redis, person)) ? ownAccessOnly : principalOf(person);
  return { actor: actorOf(person, address), principal, signedIn, again };
}

export function actorOf({ email }: Person, address: string): Actor {
  return { kind: 'person', name: email, address };
}

/** May only see and do what concerns their own access. */
const ownAccessOnly: Principal = { role: 'viewer', accountId: '' };

function principalOf({ role, account_id: accountId }: Person): Principal {
  if (role === 'operator') return operator;
  // A person without an account may see nothing.
  return { role, accountId: accountId ?? '' };
}

export const adminTag = adminTags.commands;

export function failingAdministration(log: Log): Failing {
  const otherwise = rejection('unknown');
  return { log, what: 'a request of the administration failed', otherwise, isForCallers: false };
}

/** Needs ADMIN_TOKEN, or a key or session whose role allows the action. Includes the refusals of commands that fail. */
export const adminGuard: Guard = {
  security: [{ adminToken: [] }, { session: [] }],
  refuses: ['unauthorized', 'forbidden', 'not_possible', 'overloaded', 'unknown'],
};

export function rolesText(allowed: Allowed): string {
  return `Roles: ${roles.filter((role) => mayDo(role, allowed)).join(', ')}.`;
}

export function refuseUnread(exchange: Exchange, refused: Promise<Refuse>): void {
  exchange.dropBody();
  exchange.attend(refused.then((refuse) => refuse(exchange)));
}

/** The value of a cookie, if it looks like one of ours. */
export function readCookie(req: HttpRequest, name: string): string | undefined {
  const pair = req
    .getHeader('cookie')
    .split(';')
    .map((text) => text.trim())
    .find((text) => text.startsWith(`${name}=`));
  const value = pair?.slice(name.length + 1) ?? '';
  return /^[\w.-]{1,300}$/.test(value) ? value : undefined;
}

export const sessionEnded: Refuse = (exchange) =>
  refuseUnauthorized(exchange, rejection('unauthorized', 'Unauthorized: sign in.'), challenge);

/** Pages that are open recognise this refusal by the field `second_factor`. */
const secondFactorRequired: Refuse = (exchange) =>
  exchange.refuse(rejection('forbidden', 'Your account requires a second factor: set it up first.'), {
    second_factor: 'required',
  });

const wrongToken: Refuse = (exchange) =>
  refuseUnauthorized(
    exchange,
    rejection('unauthorized', 'Unauthorized: send Authorization: Bearer ADMIN_TOKEN.'),
    challenge,
  );

const foreignPage: Refuse = (exchange) =>
  exchange.refuse(rejection('forbidden', 'Only a page of the console may do this.'));

const challenge = 'Bearer realm="sluice-admin"';

/** Distinguishes tokens without revealing one. */
function fingerprintOf(token: string): string {
  return hashSecret(token).slice(0, 8);
}
