// Who may write to an environment on the endpoints for servers: everybody, or only callers with one of its write keys, sent as HTTP Basic
// credentials (app_id and key) or as a bearer token. Decided from memory, so keys are known even while Redis is away.

import { rejection } from '../../contract/outcomes.js';
import type { Environments, LiveEnvironment } from '../../registry/environments.js';
import { hashSecret } from '../../registry/secrets.js';
import { writeAccess } from '../../tuning.js';
import { asUnauthorized, readBasic, readBearer } from '../protocol/authorization.js';
import type { Guard } from '../protocol/guard.js';

/** Whether a request with this Authorization header may do something in the environment. */
export type WriteAccess = (environment: LiveEnvironment, authorization: string | undefined) => boolean;

export function createWriteAccess(environments: Pick<Environments, 'ofWriteKey'>): WriteAccess {
  const hasWriteKey = createKeyCheck(environments);
  return (environment, authorization) =>
    !environment.needsWriteKey || hasWriteKey(environment, authorization);
}

export function createKeyCheck(environments: Pick<Environments, 'ofWriteKey'>): WriteAccess {
  // Finding a known header is much faster than decoding and hashing it. The headers of an environment are dropped together with its copy in
  // memory, which is replaced whenever anything in the registry changes.
  const accepted = new WeakMap<LiveEnvironment, Set<string>>();

  function hasKey(environment: LiveEnvironment, authorization: string): boolean {
    const basic = readBasic(authorization);
    const key = basic === undefined ? readBearer(authorization) : basic.password;
    if (key === undefined || (basic !== undefined && basic.name !== environment.appId)) return false;
    return environments.ofWriteKey(key) === environment;
  }

  return (environment, authorization) => {
    if (authorization === undefined) return false;
    const known = accepted.get(environment);
    if (known?.has(authorization)) return true;
    if (!hasKey(environment, authorization)) return false;
    // One key has many possible headers, since any number of spaces may precede it.
    if (known === undefined || known.size >= writeAccess.headersKeptMax)
      accepted.set(environment, new Set([authorization]));
    else known.add(authorization);
    return true;
  };
}

export const writeKeyGuard: Guard = {
  ...asUnauthorized,
  security: [{}, { writeKey: [] }, { writeKeyAsToken: [] }],
  refuses: ['unauthorized'],
};

export const writeKeyChallenge = 'Basic realm="sluice-write", Bearer realm="sluice-write"';
export const needsWriteKey = rejection(
  'unauthorized',
  'Unauthorized: this environment requires a write key.',
);

/** The environment without the limits that the token lifts; undefined if the token gives no allowance at present. */
export function withAllowance(
  environment: LiveEnvironment,
  token: string | undefined,
  nowMs: number,
): LiveEnvironment | undefined {
  if (token === undefined) return environment;
  const { imports } = environment;
  if (imports === undefined || nowMs >= imports.untilMs) return undefined;
  return hashSecret(token) === imports.hash ? imports.environment : undefined;
}

export const noAllowance = rejection(
  'unauthorized',
  'Unauthorized: the token for imports is wrong or has expired.',
);
