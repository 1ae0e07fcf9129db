// The allowance for imports: a request that carries its token passes without the limits of bulk requests.

import { rejection } from '../../contract/outcomes.js';
import type { LiveEnvironment } from '../../registry/environments.js';
import { hashSecret } from '../../registry/secrets.js';

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
