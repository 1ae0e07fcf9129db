// What ClickHouse holds of an environment, against what was acknowledged: the check that every run ends with.

import type { Deployment } from './deployment.js';
import { BenchError } from './failure.js';

/** A look costs ClickHouse some milliseconds of CPU. */
const lookEveryMs = 100;
const merged = { lookEveryMs: 200, msMax: 30_000 };

type Rows = Pick<Deployment, 'rows'>;

/**
 * Settles when ClickHouse holds as many events of the environment as were acknowledged, or more. Rejects when
 * it got none for `stallMsMax`.
 */
export async function untilStored(
  { rows }: Rows,
  appId: string,
  acknowledged: number,
  stallMsMax = 30_000,
): Promise<void> {
  let count = await countStored({ rows }, appId);
  for (let movedAt = performance.now(); count < acknowledged; ) {
    if (performance.now() - movedAt > stallMsMax) {
      throw new BenchError(`${acknowledged} events were acknowledged, ClickHouse stays at ${count}`);
    }
    await pause(lookEveryMs);
    const now = await countStored({ rows }, appId);
    if (now > count) movedAt = performance.now();
    count = now;
  }
}

/** Rejects unless ClickHouse holds exactly that many events of the environment, each under an id of its own. */
export async function assertStored({ rows }: Rows, appId: string, acknowledged: number): Promise<void> {
  const [row] = await rows<{ events: number; ids: number }>(
    `SELECT toUInt32(count()) AS events, toUInt32(uniqExact(event_id)) AS ids FROM events WHERE app_id = '${appId}'`,
  );
  const { events, ids } = row ?? { events: 0, ids: 0 };
  if (events !== acknowledged || ids !== acknowledged) {
    throw new BenchError(
      `${acknowledged} events were acknowledged, ClickHouse holds ${events} with ${ids} different ids`,
    );
  }
}

export async function countStored({ rows }: Rows, appId: string): Promise<number> {
  const [row] = await rows<{ events: number }>(
    `SELECT toUInt32(count()) AS events FROM events WHERE app_id = '${appId}'`,
  );
  return row?.events ?? 0;
}

/** Settles when ClickHouse merges nothing, or after 30 s: one run should not pay for another one's merges. */
export async function mergesEnded({ rows }: Rows): Promise<void> {
  const deadline = performance.now() + merged.msMax;
  while (performance.now() < deadline) {
    const [row] = await rows<{ merges: number }>('SELECT toUInt32(count()) AS merges FROM system.merges');
    if (row?.merges === 0) return;
    await pause(merged.lookEveryMs);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
