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
import { registryKeys } from '../../redis/keys.js';
import { observeOldest } from './request.js';
import { userTables } from './user-tables.js';

/** States are read of this many of the oldest pending requests; a request for the metrics costs the same however many there are. */
const statesReadMax = 1_000;

export async function observeDeletions(redis: Redis): Promise<void> {
  const { pendingDeletions, hiddenDeletions, lostDeletions } = registryKeys;
  const [pending, hidden, [count = 0, hiddenCount = 0, lost = 0]] = await Promise.all([
    observeOldest(redis, pendingDeletions, statesReadMax),
    observeOldest(redis, hiddenDeletions, 1),
    Promise.all([pendingDeletions, hiddenDeletions, lostDeletions].map((list) => redis.zcard(list))),
  ]);
  deletionsPending.reset();
  for (const { state } of pending) deletionsPending.inc({ state });
  for (const [state, more] of [
    ['submitted', count - pending.length],
    ['hidden', hiddenCount],
    ['targets_lost', lost],
  ] as const)
    if (more > 0) deletionsPending.inc({ state }, more);
  deletionsOldestSeconds.set(secondsSince(pending[0]?.submitted_at));
  deletionsHiddenSeconds.set(secondsSince(hidden[0]?.submitted_at));
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
