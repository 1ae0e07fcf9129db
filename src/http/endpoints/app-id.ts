// From a request's app_id to its environment. Shared by the endpoints that take records.

import { type Rejection, rejection } from '../../contract/outcomes.js';
import { envelopeSchema } from '../../contract/schemas.js';
import { Compile } from '../../contract/typebox.js';
import { explain, wrongType } from '../../parsing/explain.js';
import type { Environments, LiveEnvironment } from '../../registry/environments.js';

const envelope = Compile(envelopeSchema);

/** The app_id of a document as text, or the reason to refuse it. */
export function appIdOf(value: unknown): string | Rejection {
  const appId =
    typeof value === 'object' && value !== null ? (value as { app_id?: unknown }).app_id : undefined;
  if (typeof appId === 'number' && Number.isSafeInteger(appId) && appId >= 0) return String(appId);
  return explain(envelope, value) ?? String(appId);
}

/** The environment of an app_id that this process does not know yet, or the reason to refuse it. */
export async function findEnvironment(
  environments: Environments,
  appId: string,
): Promise<LiveEnvironment | Rejection> {
  const found = await environments.find(appId);
  if (found !== undefined) return found;
  // While Redis is away or emptied, nobody knows whether there is such an environment.
  return environments.isCurrent() ? unknownAppId : notLoaded;
}

/** Why an environment refuses an app_id that is a number: only lenient environments accept that. */
export function refuseNumericAppId({ lenient }: LiveEnvironment, value: unknown): Rejection | undefined {
  return lenient || typeof (value as { app_id: unknown }).app_id === 'string' ? undefined : numericAppId;
}

export const notLoaded = rejection(
  'overloaded',
  'Nothing was stored: the state of the service is not loaded.',
);
const unknownAppId = rejection('unknown_app_id', undefined, 'app_id');
const numericAppId = wrongType('app_id', ['string'], 0);
