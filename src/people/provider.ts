// Single sign-on: people come from a provider of OpenID Connect, which says who they are and which role they have. Between the
// way there and the way back a browser keeps what belongs to the attempt in a cookie that is signed, so the service keeps
// nothing for somebody whom it does not know.

import { createHmac, timingSafeEqual } from 'node:crypto';
import { AdministrationError } from '../accounts/accounts.js';
import { signOn } from '../contract/limits.js';
import { type Role, roles } from '../contract/roles.js';
import type { Configuration } from '../packages/openid-client.js';

export type ProviderOptions = {
  /** The address of the provider. */
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** The claim that names the role. */
  readonly roleClaim: string;
};

/** What a browser keeps between the way there and the way back. */
export type Attempt = { readonly state: string; readonly nonce: string; readonly verifier: string };

/** Whom the provider vouches for. */
export type Vouched = {
  readonly issuer: string;
  readonly subject: string;
  readonly email: string;
  readonly role: Role;
  readonly accountId?: string;
};

/** The provider does not answer, or what came from it is not genuine. */
export class ProviderFailed extends Error {
  constructor(cause: unknown) {
    super('the provider of single sign-on failed', { cause });
  }
}

export type Provider = {
  /** Where to send a browser, and what it keeps. Rejects with ProviderFailed. */
  begin(returnTo: string): Promise<{ readonly url: string; readonly attempt: Attempt }>;
  /** Who came back at this address. Rejects with ProviderFailed, and with AdministrationError for people who may not in. */
  end(url: URL, attempt: Attempt): Promise<Vouched>;
};

export function createProvider(options: ProviderOptions): Provider {
  const { issuer, clientId, clientSecret, roleClaim } = options;
  let discovered: Promise<Configuration> | undefined;

  /** Asks the provider where its endpoints are, once it has answered. */
  function configuration(): Promise<Configuration> {
    const asked = discovered ?? discover();
    discovered = asked;
    asked.catch(() => {
      discovered = undefined;
    });
    return asked;
  }

  async function discover(): Promise<Configuration> {
    // Loaded when the first one signs in: it would double the time in which a process starts.
    const { allowInsecureRequests, discovery } = await import('../packages/openid-client.js');
    const url = new URL(issuer);
    // An address without TLS is deliberate: a provider on the same machine.
    const execute = url.protocol === 'http:' ? [allowInsecureRequests] : [];
    return discovery(url, clientId, clientSecret, undefined, { execute, timeout: signOn.timeoutSeconds });
  }

  return {
    begin: async (returnTo) => {
      // A fetch that fails rejects with a TypeError, as a fault of ours does.
      const config = await configuration().catch(failed);
      const client = await import('../packages/openid-client.js');
      const attempt = {
        state: client.randomState(),
        nonce: client.randomNonce(),
        verifier: client.randomPKCECodeVerifier(),
      };
      const url = client.buildAuthorizationUrl(config, {
        redirect_uri: returnTo,
        scope: 'openid email',
        state: attempt.state,
        nonce: attempt.nonce,
        code_challenge: await client.calculatePKCECodeChallenge(attempt.verifier),
        code_challenge_method: 'S256',
      });
      return { url: url.href, attempt };
    },
    end: async (url, { state, nonce, verifier }) => {
      const claims = await claimsOf(url, { state, nonce, verifier }).catch(failed);
      return vouchedOf(claims, roleClaim);
    },
  };

  async function claimsOf(url: URL, { state, nonce, verifier }: Attempt) {
    const config = await configuration();
    const { authorizationCodeGrant, fetchUserInfo } = await import('../packages/openid-client.js');
    const tokens = await authorizationCodeGrant(config, url, {
      expectedState: state,
      expectedNonce: nonce,
      pkceCodeVerifier: verifier,
      idTokenExpected: true,
    });
    const claims = tokens.claims();
    if (claims === undefined) throw new Error('the provider has sent no ID token');
    const more =
      config.serverMetadata().userinfo_endpoint === undefined
        ? {}
        : await fetchUserInfo(config, tokens.access_token, claims.sub);
    return { ...more, ...claims };
  }
}

function failed(cause: unknown): never {
  throw new ProviderFailed(cause);
}

/** Whom these claims are about. Throws AdministrationError if they give no address or no role. */
export function vouchedOf(claims: Readonly<Record<string, unknown>>, roleClaim: string): Vouched {
  const { iss, sub, email, email_verified: isVerified } = claims;
  if (typeof iss !== 'string' || typeof sub !== 'string')
    throw new Error('the ID token has no issuer or no subject');
  // Some providers leave the claim out, and some send a text.
  const isVouched = isVerified === undefined || isVerified === true || isVerified === 'true';
  if (typeof email !== 'string' || !isVouched)
    throw new AdministrationError('your provider does not vouch for your e-mail address');
  const claimed: unknown = claims[roleClaim];
  const named: readonly unknown[] = Array.isArray(claimed) ? claimed : [claimed];
  for (const text of named) {
    const role = roleOf(text);
    if (role !== undefined) return { issuer: iss, subject: sub, email, ...role };
  }
  throw new AdministrationError('your provider gives you no role here');
}

/** `operator`, or a role and the id of its account, such as `privacy:12`. */
function roleOf(text: unknown): Pick<Vouched, 'role' | 'accountId'> | undefined {
  if (text === 'operator') return { role: 'operator' };
  if (typeof text !== 'string') return undefined;
  const [name, accountId = '', ...rest] = text.split(':');
  const role = roles.find((each) => each === name && each !== 'operator');
  return role === undefined || accountId === '' || rest.length > 0 ? undefined : { role, accountId };
}

/** The text of an attempt for a cookie, valid for some minutes. */
export function signAttempt(secret: string, { state, nonce, verifier }: Attempt, nowMs: number): string {
  const text = [state, nonce, verifier, String(nowMs + signOn.attemptMsMax)].join('.');
  return `${text}.${signatureOf(secret, text)}`;
}

/** The attempt of such a text; undefined if it is not genuine or too old. */
export function readAttempt(secret: string, signed: string, nowMs: number): Attempt | undefined {
  const at = signed.lastIndexOf('.');
  const text = signed.slice(0, Math.max(0, at));
  const given = Buffer.from(signed.slice(at + 1));
  const expected = Buffer.from(signatureOf(secret, text));
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
  const [state = '', nonce = '', verifier = '', until = ''] = text.split('.');
  return Number(until) > nowMs ? { state, nonce, verifier } : undefined;
}

function signatureOf(secret: string, text: string): string {
  return createHmac('sha256', secret).update(`sign-on ${text}`).digest('base64url');
}
