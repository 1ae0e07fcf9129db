// The metrics of deletions: how many are pending, why, and since when.

import { deletionsOldestSeconds, deletionsPending } from '../../metrics.js';
import type { Redis } from '../../redis/client.js';
import { observePending, readLostMembers } from './request.js';

/** Sets the gauges of deletions from Redis. */
export async function observeDeletions(redis: Redis): Promise<void> {
  const [pending, lost] = await Promise.all([observePending(redis), readLostMembers(redis)]);
  deletionsPending.reset();
  for (const { state } of pending) deletionsPending.inc({ state });
  if (lost.length > 0) deletionsPending.set({ state: 'targets_lost' }, lost.length);
  const oldest = pending[0];
  const ageMs = oldest === undefined ? 0 : Date.now() - Date.parse(oldest.submitted_at);
  deletionsOldestSeconds.set(Math.max(0, ageMs / 1000));
}
