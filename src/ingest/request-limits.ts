// The rate limits that a request must pass, each with the digest of what it counts. Pure.

import type { LimitName } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import type { LiveEnvironment } from '../registry/environments.js';
import type { Callers, LimitKeys } from './limit-key.js';
import type { LimitCheck } from './pack.js';
import type { Checked, RecordKind } from './record-kind.js';

export type LimitContext = { readonly environment: LiveEnvironment; readonly limitKeys: LimitKeys };

export type NamedLimit = LimitCheck & { readonly name: LimitName };

/** Refuses a request that could never pass one of its limits. `field`: its list. */
export function refuseTooLarge(limits: readonly NamedLimit[], field: string): Rejection | undefined {
  const exceeded = limits.find(({ cost, limit }) => cost > limit.max);
  if (exceeded === undefined) return undefined;
  const { name, cost, limit } = exceeded;
  const message = `The request counts as ${cost}; the limit ${name} allows ${limit.max}.`;
  return rejection('too_large_for_limit', message, field);
}

/** The limit of a request with one record: its user's, if the kind has a limit. */
export function singleLimits(
  { name: counter, singleLimit: name }: Pick<RecordKind, 'name' | 'singleLimit'>,
  user: Checked,
  { environment, limitKeys }: LimitContext,
): NamedLimit[] {
  const limit = name === undefined ? undefined : environment.limits[name];
  if (name === undefined || limit === undefined) return [];
  return [{ name, digest: limitKeys.ofUser(counter, environment.appId, user), cost: 1, limit }];
}

/** Adds the limits that an environment has over all endpoints: on records, and on their uncompressed bytes. */
export function addEnvironmentLimits(
  limits: NamedLimit[],
  records: number,
  bytes: number,
  { environment, limitKeys }: LimitContext,
  callers: Callers = 'all',
): void {
  const { app_records: ofRecords, app_bytes: ofBytes } = environment.limits;
  if (records === 0 || (ofRecords === undefined && ofBytes === undefined)) return;
  const digests = limitKeys.ofEnvironment(environment, callers);
  if (ofRecords !== undefined)
    limits.push({ name: 'app_records', digest: digests.records, cost: records, limit: ofRecords });
  if (ofBytes !== undefined)
    limits.push({ name: 'app_bytes', digest: digests.bytes, cost: bytes, limit: ofBytes });
}

/** The limits of a bulk request, in records: its environment's, and those of each of its users. */
export function bulkLimits(
  { name: counter }: { readonly name: string },
  count: number,
  users: () => readonly Checked[],
  { environment, limitKeys }: LimitContext,
): NamedLimit[] {
  const { appId } = environment;
  const { bulk_app: appLimit, bulk_identity: userLimit } = environment.limits;
  const limits: NamedLimit[] = [];
  if (appLimit !== undefined) {
    limits.push({ name: 'bulk_app', digest: limitKeys.ofApp(counter, appId), cost: count, limit: appLimit });
  }
  if (userLimit === undefined) return limits;

  const costs = new Map<string, { user: Checked; cost: number }>();
  for (const user of users()) {
    const key = user.userId === undefined ? `i${user.identity}` : `u${user.userId}`;
    const entry = costs.get(key);
    if (entry === undefined) costs.set(key, { user, cost: 1 });
    else entry.cost += 1;
  }
  for (const { user, cost } of costs.values()) {
    const digest = limitKeys.ofUser(`bulk ${counter}`, appId, user);
    limits.push({ name: 'bulk_identity', digest, cost, limit: userLimit });
  }
  return limits;
}
