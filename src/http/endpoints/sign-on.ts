// Single sign-on in a browser: the way to the provider and the way back. The browser navigates to both addresses, and to the second one
// from the provider's page. So both check the host name and the cookie of the attempt: the sign-in must have begun in the same browser.

import type { HttpRequest } from 'uWebSockets.js';
import { createHmac } from 'node:crypto';
import { enterByProvider, type NotEntered } from '../../accounts/people/people.js';
import {
  type NotVouched,
  type Provider,
  ProviderFailed,
  readAttempt,
  signAttempt,
  useAttempt,
  type Vouched,
} from '../../accounts/people/provider.js';
import { beginSession } from '../../accounts/people/sessions.js';
import { Fault, loaded } from '../../contract/errors.js';
import { people as bounds, signOn } from '../../contract/limits.js';
import { registryKeys } from '../../redis/keys.js';
import { countWithin } from '../../redis/transactions.js';
import { audited } from '../../registry/audit/audit.js';
import type { Person } from '../../registry/documents.js';
import { adminTags } from '../openapi/administration.js';
import { operation } from '../openapi/document.js';
import { networkOf } from '../protocol/caller-address.js';
import type { Exchange, Headers } from '../protocol/exchange.js';
import { isOwnFault } from '../protocol/failed.js';
import type { Route } from '../protocol/server.js';
import { type CookieNames, cookieNamesOf, readCookie } from './admin-caller.js';
import { cookieOf, type SignInOptions } from './console-session.js';

export type SignOnOptions = SignInOptions & {
  readonly provider: Provider;
  /** The origin of the console. */
  readonly adminBaseUrl: string;
};

const path = '/admin/v1/sign_on';
const returnPath = `${path}/return`;

/** What the sign-in page says. The address tells it: `/?sign_on=…`. */
type Refusal = 'provider' | 'again' | 'not_in' | 'unavailable';

export function signOnRoutes(options: SignOnOptions): Route[] {
  return [
    { ...wayThere, handle: (exchange, req) => begin(options, exchange, req) },
    { ...wayBack, handle: (exchange, req) => end(options, exchange, req) },
  ];
}

const wayThere = {
  method: 'get' as const,
  path,
  doc: docOf('beginSignOn', 'Sends a browser to the provider of single sign-on', []),
};
const wayBack = {
  method: 'get' as const,
  path: returnPath,
  doc: docOf(
    'endSignOn',
    'The way back from the provider: begins a session, or redirects to /?sign_on= with the reason why not',
    ['code', 'state'],
  ),
};

/** In every deployment's document, even without a provider. */
export const signOnDocs = [wayThere, wayBack];

function docOf(id: string, summary: string, parameters: readonly string[]): object {
  const schema = { type: 'string' };
  return operation({
    id,
    tag: adminTags.open,
    summary,
    description: 'For browsers, where `OIDC_ISSUER` is set.',
    parameters: parameters.map((name) => ({ name, in: 'query', schema })),
    answers: { 302: { description: 'The next address.', headers: { Location: { schema } } } },
    refuses: ['forbidden'],
  });
}

function begin(options: SignOnOptions, exchange: Exchange, req: HttpRequest): void {
  const fault = options.callers.faultOfPage(req);
  const names = cookieNamesOf(req);
  exchange.dropBody();
  if (fault !== undefined) return fault(exchange);
  answer(options, exchange, names, async () => {
    const { url, attempt } = await options.provider.begin(`${options.adminBaseUrl}${returnPath}`);
    const signed = signAttempt(loaded(options.secret()), attempt, Date.now());
    redirect(exchange, url, [attemptCookie(options, names, signed, signOn.attemptMsMax)]);
  });
}

function end(options: SignOnOptions, exchange: Exchange, req: HttpRequest): void {
  const fault = options.callers.faultOfName(req);
  const names = cookieNamesOf(req);
  const kept = readCookie(req, names.attempt);
  const from = { address: exchange.address, agent: req.getHeader('user-agent') };
  const url = new URL(`${options.adminBaseUrl}${returnPath}?${exchange.query}`);
  exchange.dropBody();
  if (fault !== undefined) return fault(exchange);
  answer(options, exchange, names, async () => {
    const attempt = kept === undefined ? undefined : readAttempt(loaded(options.secret()), kept, Date.now());
    if (attempt === undefined) return refuse(options, exchange, names, 'again');
    const who = await options.provider.end(url, attempt);
    if (!(await useAttempt(options.redis, attempt))) {
      options.log.warn('a sign-in by the provider was sent again');
      return refuse(options, exchange, names, 'again');
    }
    const person = await enter(options, who, from.address);
    if ('refused' in person) {
      options.log.warn({ reason: person.refused }, 'somebody from the provider was not let in');
      return refuse(options, exchange, names, 'not_in');
    }
    const { secret } = await beginSession(options.redis, person, from);
    redirect(exchange, '/', [
      cookieOf(options, names.session, secret, bounds.sessionMs),
      attemptCookie(options, names, '', 0),
    ]);
  });
}

/**
 * Lets a person in, with a line in the audit log under the address that the provider vouches for; if it vouches for none, under the
 * provider's own name for the person. Refusals leave a limited number of lines per network, since the provider may know everybody.
 */
async function enter(
  options: SignOnOptions,
  who: Vouched | NotVouched,
  address: string,
): Promise<Person | NotEntered> {
  const { audit, redis } = options;
  const work = () => enterByProvider(redis, who);
  const isVouched = 'email' in who;
  if (!isVouched) {
    const digest = createHmac('sha256', loaded(options.secret()))
      .update(`sign-on ${networkOf(address)}`)
      .digest('hex');
    const key = registryKeys.signOnRefusals(digest);
    if ((await countWithin(redis, key, 60_000)) > signOn.refusalsAuditedMax) return work();
  }
  return audited(
    audit,
    {
      kind: 'person',
      name: (isVouched ? who.email.trim().toLowerCase() : `subject ${who.subject}`).slice(0, bounds.emailMax),
      address,
    },
    {
      action: 'sign_on',
      account_id: isVouched ? who.accountId : undefined,
      details: isVouched ? { role: who.role } : {},
    },
    work,
    {
      endingOf: (ended) => {
        if (!('refused' in ended)) return { outcome: 'done' };
        const { refused: reason, ...subjects } = ended;
        return { outcome: 'refused', ...subjects, details: { reason } };
      },
      outcomeOfError: () => 'unknown',
    },
  );
}

/** Redirects to the sign-in page, which explains whatever went wrong. */
function answer(
  options: SignOnOptions,
  exchange: Exchange,
  names: CookieNames,
  work: () => Promise<void>,
): void {
  const answered = work().catch((error: unknown) => {
    if (error instanceof Fault) return refuse(options, exchange, names, 'unavailable');
    if (isOwnFault(error)) throw error;
    const isOfProvider = error instanceof ProviderFailed;
    options.log.warn({ error: isOfProvider ? error.cause : error }, 'a sign-in by the provider failed');
    refuse(options, exchange, names, isOfProvider ? 'provider' : 'unavailable');
  });
  exchange.attend(answered);
}

function refuse(options: SignOnOptions, exchange: Exchange, names: CookieNames, why: Refusal): void {
  redirect(exchange, `/?sign_on=${why}`, [attemptCookie(options, names, '', 0)]);
}

function redirect(exchange: Exchange, to: string, headers: Headers): void {
  exchange.reply(302, '{}', [['Location', to], ['Cache-Control', 'no-store'], ...headers]);
}

/** The navigation back starts on the provider's page, so the cookie must be sent with navigations from there. */
function attemptCookie(options: SignOnOptions, names: CookieNames, value: string, maxAgeMs: number) {
  const [name, text] = cookieOf(options, names.attempt, value, maxAgeMs);
  return [
    name,
    text.replace('Path=/admin/v1;', `Path=${returnPath};`).replace('SameSite=Strict', 'SameSite=Lax'),
  ] as const;
}
