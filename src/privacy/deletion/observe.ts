// The metrics of deletions: how many are pending, why and since when, and how many bytes are masked but not erased.

import { type ClickHouseClient, endingAfter } from '../../clickhouse/client.js';
import { readMaskedBytes } from '../../clickhouse/masks.js';
import { serversOf } from '../../clickhouse/servers.js';
import {
  deletionsHiddenSeconds,
  deletionsOldestSeconds,
  deletionsPending,
  maskedBytes,
} from '../../metrics.js';
import type { Redis } from '../../redis/client.js';
import { observeHidden, observePending, readLostMembers } from './request.js';
import { userTables } from './user-tables.js';

export async function observeDeletions(redis: Redis): Promise<void> {
  const [pending, hidden, lost] = await Promise.all([
    observePending(redis),
    observeHidden(redis),
    readLostMembers(redis),
  ]);
  deletionsPending.reset();
  for (const { state } of pending) deletionsPending.inc({ state });
  if (hidden.count > 0) deletionsPending.set({ state: 'hidden' }, hidden.count);
  if (lost.length > 0) deletionsPending.set({ state: 'targets_lost' }, lost.length);
  deletionsOldestSeconds.set(secondsSince(pending[0]?.submitted_at));
  deletionsHiddenSeconds.set(secondsSince(hidden.oldestAt));
}

function secondsSince(at: string | undefined): number {
  return at === undefined ? 0 : Math.max(0, (Date.now() - Date.parse(at)) / 1000);
}

/** A request for the metrics waits no longer than this for ClickHouse. */
const waitMsMax = 1_000;

/** Sets the gauge of masked bytes; it has no value if a server does not answer. Never rejects. */
export async function observeMasked(clickhouse: ClickHouseClient): Promise<void> {
  const ofServers = serversOf(clickhouse).all.map((client) =>
    readMaskedBytes(client, userTables, endingAfter(waitMsMax)).catch(() => Number.NaN),
  );
  maskedBytes.set((await Promise.all(ofServers)).reduce((sum, bytes) => sum + bytes, 0));
}
