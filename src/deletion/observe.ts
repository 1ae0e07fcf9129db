// The metrics of deletions: how many are pending, why, and since when.

import { deletionsOldestSeconds, deletionsPending } from '../metrics.js';
import type { Redis } from '../redis/client.js';
import { readPendingDeletions } from './request.js';

/** Sets the gauges of deletions from Redis. */
export async function observeDeletions(redis: Redis): Promise<void> {
  const pending = await readPendingDeletions(redis, Number.POSITIVE_INFINITY);
  deletionsPending.reset();
  for (const { state } of pending) deletionsPending.inc({ state });
  const oldest = pending[0];
  const ageMs = oldest === undefined ? 0 : Date.now() - Date.parse(oldest.submitted_at);
  deletionsOldestSeconds.set(Math.max(0, ageMs / 1000));
}
