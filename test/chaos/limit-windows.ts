// Checks that rate limits were kept, by the times of acceptance that the service stored with the records.

import type { Endpoint } from '../harness/endpoints.js';
import { type StoredEvent, sendingsOf } from '../harness/exactly-once.js';
import type { Invocation, Settlement } from '../harness/load.js';
import type { Broken } from './broken.js';

/** How many bulk events of one user an environment of a round accepts per minute. */
export const bulkIdentityMax = 200;

type Limit = { readonly name: string; readonly max: number; readonly windowMs: number };

const limits: Partial<Record<string, Limit>> = {
  'track event': { name: 'track', max: 30, windowMs: 30_000 },
  'user_properties user_properties': { name: 'user_properties', max: 30, windowMs: 30_000 },
  'collect user_properties': { name: 'user_properties of collect', max: 30, windowMs: 30_000 },
  'bulk event': { name: 'bulk_identity', max: bulkIdentityMax, windowMs: 60_000 },
};

/**
 * Finds windows with more records than their limit; none after Redis was emptied, since it then forgot what it had accepted. The clock that
 * stamps records stood still for `clockStoodMs`, unlike that of limits, so windows count as that much shorter.
 */
export function findExceeded(
  history: readonly (Invocation & Partial<Settlement>)[],
  rows: readonly StoredEvent[],
  emptied: boolean,
  clockStoodMs = 0,
): Broken[] {
  if (emptied) return [];
  const endpoints = new Map<string, Endpoint>();
  for (const { endpoint, event } of history.flatMap(sendingsOf)) {
    const { marker } = event.properties;
    if (!endpoints.has(marker)) endpoints.set(marker, endpoint);
  }
  const times = new Map<string, { readonly limit: Limit; readonly ms: number[] }>();
  for (const { kind = 'event', properties, identity, user_id, received_ms } of rows) {
    const limit = limits[`${endpoints.get(properties.marker ?? '')} ${kind}`];
    if (limit === undefined) continue;
    const user = `${limit.name} ${identity}/${user_id ?? ''}`;
    const found = times.get(user) ?? { limit, ms: [] };
    found.ms.push(Number(received_ms));
    times.set(user, found);
  }
  return [...times].flatMap(([what, { limit, ms }]) => {
    const windowMs = limit.windowMs - clockStoodMs;
    const most = mostIn(ms, windowMs);
    return most > limit.max ? [{ kind: 'limit exceeded', what, detail: `${most} in ${windowMs} ms` }] : [];
  });
}

function mostIn(times: readonly number[], windowMs: number): number {
  const sorted = [...times].sort((a, b) => a - b);
  let most = 0;
  for (let first = 0, last = 0; last < sorted.length; last += 1) {
    while ((sorted[last] as number) - (sorted[first] as number) >= windowMs) first += 1;
    most = Math.max(most, last - first + 1);
  }
  return most;
}
