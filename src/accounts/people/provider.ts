// Single sign-on: people come from an OpenID Connect provider, which says who they are and which role they have. Its statements count only
// if they are signed by one of its published keys. While a browser is at the provider, it keeps the attempt in a signed cookie, so the
// service stores nothing for strangers. An attempt can be used once.

import { createHmac } from 'node:crypto';
import { isSafeAddress, type ProviderConfig } from '../../config.js';
import { signOn } from '../../contract/limits.js';
import { type Role, roles } from '../../contract/roles.js';
import type { Configuration } from '../../packages/openid-client.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { onReplicas } from '../../redis/replicas.js';
import { areEqual, hashSecret } from '../../registry/secrets.js';

/** What a browser keeps while it is at the provider. */
export type Attempt = { readonly state: string; readonly nonce: string; readonly verifier: string };

/** A user of a provider, whatever their address. */
export type Subject = { readonly issuer: string; readonly subject: string };

export type Vouched = Subject & {
  readonly email: string;
  readonly role: Role;
  readonly accountId?: string;
};

/** Whom the provider knows, but to whom it gives no access. */
export type NotVouched = Subject & { readonly refused: 'no_email' | 'email_not_verified' | 'no_role' };

/** The provider does not answer, or what came from it is not genuine. */
export class ProviderFailed extends Error {
  constructor(cause: unknown) {
    super('the provider of single sign-on failed', { cause });
  }
}

export type Provider = ReturnType<typeof createProvider>;

export function createProvider(options: ProviderConfig) {
  const { issuer, clientId, clientSecret, roleClaim } = options;
  let discovered: Promise<Configuration> | undefined;

  /** The provider's endpoints. They are asked for once, and again after a failure. */
  function configuration(): Promise<Configuration> {
    const asked = discovered ?? discover();
    discovered = asked;
    asked.catch(() => {
      discovered = undefined;
    });
    return asked;
  }

  async function discover(): Promise<Configuration> {
    // Loaded when the first person signs in: it would double the start time of a process.
    const { allowInsecureRequests, discovery, enableNonRepudiationChecks } = await import(
      '../../packages/openid-client.js'
    );
    const url = new URL(issuer);
    // Otherwise the library trusts the connection and checks no signature. With this, tokens without a signature (`none`) or signed with a
    // secret (`HS256`) do not pass.
    const execute = [enableNonRepudiationChecks];
    // `config.ts` allows an address without TLS only for a provider on this machine; the same holds for the addresses that it names.
    if (url.protocol === 'http:') execute.push(allowInsecureRequests);
    const config = await discovery(url, clientId, clientSecret, undefined, {
      execute,
      timeout: signOn.timeoutSeconds,
    });
    const { authorization_endpoint, token_endpoint, userinfo_endpoint, jwks_uri } = config.serverMetadata();
    for (const address of [authorization_endpoint, token_endpoint, userinfo_endpoint, jwks_uri])
      if (address !== undefined && !isSafeAddress(address)) throw new Error(`${address} is not safe`);
    return config;
  }

  return {
    /** Where to send a browser, and what it keeps. Rejects with ProviderFailed. */
    begin: async (returnTo: string): Promise<{ readonly url: string; readonly attempt: Attempt }> => {
      // A failing fetch rejects with a TypeError, which would be taken for a bug of ours.
      const config = await configuration().catch(throwProviderFailed);
      const client = await import('../../packages/openid-client.js');
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
    /** Who came back at this address. Rejects with ProviderFailed. */
    end: async (url: URL, attempt: Attempt): Promise<Vouched | NotVouched> => {
      const claims = await claimsOf(url, attempt).catch(throwProviderFailed);
      return vouchedOf(claims, roleClaim);
    },
  };

  async function claimsOf(url: URL, { state, nonce, verifier }: Attempt) {
    const config = await configuration();
    const { authorizationCodeGrant, fetchUserInfo } = await import('../../packages/openid-client.js');
    const tokens = await authorizationCodeGrant(config, url, {
      expectedState: state,
      expectedNonce: nonce,
      pkceCodeVerifier: verifier,
      idTokenExpected: true,
    });
    const claims = tokens.claims();
    if (claims === undefined) throw new Error('the provider has sent no ID token');
    const userInfo =
      config.serverMetadata().userinfo_endpoint === undefined
        ? {}
        : await fetchUserInfo(config, tokens.access_token, claims.sub);
    return { idToken: claims, userInfo };
  }
}

function throwProviderFailed(cause: unknown): never {
  throw new ProviderFailed(cause);
}

type ClaimSet = Readonly<Record<string, unknown>>;

/** The person whom the ID token is about, with what the userinfo endpoint adds. */
export function vouchedOf(
  { idToken, userInfo }: { readonly idToken: ClaimSet; readonly userInfo: ClaimSet },
  roleClaim: string,
): Vouched | NotVouched {
  const { iss: issuer, sub: subject } = idToken;
  if (typeof issuer !== 'string' || typeof subject !== 'string')
    throw new Error('the ID token has no issuer or no subject');
  const refuse = (refused: NotVouched['refused']) => ({ issuer, subject, refused });
  const sources = [idToken, userInfo];
  const source = sources.find(({ email }) => typeof email === 'string' && email !== '');
  if (source === undefined) return refuse('no_email');
  // Some providers leave the claim out, and some send a text. What one source says about its address does not hold for the other's.
  const stated = sources.filter(({ email_verified: value }) => value !== undefined);
  const isVouched =
    (stated.length === 0 || stated.includes(source)) &&
    stated.every(({ email_verified: value }) => value === true || value === 'true');
  if (!isVouched) return refuse('email_not_verified');
  const claimed: unknown = idToken[roleClaim] ?? userInfo[roleClaim];
  const named: readonly unknown[] = Array.isArray(claimed) ? claimed : [claimed];
  for (const text of named) {
    const role = roleOf(text);
    if (role !== undefined) return { issuer, subject, email: source.email as string, ...role };
  }
  return refuse('no_role');
}

/** `operator`, or a role and the id of its account, such as `privacy:12`. */
function roleOf(text: unknown): Pick<Vouched, 'role' | 'accountId'> | undefined {
  if (text === 'operator') return { role: 'operator' };
  if (typeof text !== 'string') return undefined;
  const [name, accountId = '', ...rest] = text.split(':');
  const role = roles.find((each) => each === name && each !== 'operator');
  return role === undefined || accountId === '' || rest.length > 0 ? undefined : { role, accountId };
}

/** An attempt as the text of a cookie, valid for some minutes. */
export function signAttempt(secret: string, { state, nonce, verifier }: Attempt, nowMs: number): string {
  const text = [state, nonce, verifier, String(nowMs + signOn.attemptMsMax)].join('.');
  return `${text}.${signatureOf(secret, text)}`;
}

/** The attempt of such a text; undefined if it is not genuine or too old. */
export function readAttempt(secret: string, signed: string, nowMs: number): Attempt | undefined {
  const at = signed.lastIndexOf('.');
  const text = signed.slice(0, Math.max(0, at));
  if (!areEqual(signed.slice(at + 1), signatureOf(secret, text))) return undefined;
  const [state = '', nonce = '', verifier = '', until = ''] = text.split('.');
  return Number(until) > nowMs ? { state, nonce, verifier } : undefined;
}

/** Uses an attempt up; false if it was used before. Only for attempts that the provider has confirmed, so strangers cannot fill Redis. */
export async function useAttempt(redis: Redis, { state }: Attempt): Promise<boolean> {
  const key = registryKeys.usedSignOn(hashSecret(state));
  const set = () => redis.set(key, '1', 'PX', signOn.attemptMsMax, 'NX');
  return (await onReplicas(redis, key, set)) === 'OK';
}

function signatureOf(secret: string, text: string): string {
  return createHmac('sha256', secret).update(`sign-on ${text}`).digest('base64url');
}
