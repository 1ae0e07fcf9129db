// Runs rounds of deletions while requests are pending. Workers take turns at them: all requests share one round, and so its mutations.

import { registryKeys } from '../src/redis/keys.js';
import { withLease } from '../src/redis/lease.js';
import { erasures } from '../src/tuning.js';
import type { WorkerContext } from './context.js';
import { runDeletionRound } from './delete.js';
import { retryPauseMs, serversAwaitedMs } from './queues.js';
import type { RoundOptions } from './round/round.js';

/**
 * Makes the function to be called often, which runs a round if one is due and no other worker runs one: while requests are pending, and from
 * time to time to erase what rounds have masked. `onCallbacksDue` gets the completed requests whose accounts want to be called.
 */
export function createRounds(
  context: WorkerContext,
  onCallbacksDue: RoundOptions['onCallbacksDue'],
): () => Promise<void> {
  const { redis, config } = context;
  // Rounds rest while all requests wait for unreachable servers: that may last for hours, and each round reads the whole registry.
  let pending = 0;
  let erasureCheckedAtMs = 0;
  let restsUntilMs = 0;
  let [failures, failedUntilMs] = [0, 0];
  const refused = new Set<string>();
  const onServersAwaited = () => {
    restsUntilMs = performance.now() + serversAwaitedMs;
  };
  const round = { ...context, erasure: config.erasure, refused, onServersAwaited, onCallbacksDue };
  const times = { holdMs: config.jobLockMs, renewEveryMs: config.jobLockMs / 3 };
  return async () => {
    if (performance.now() < failedUntilMs) return;
    const before = pending;
    const { pendingDeletions, hiddenDeletions, deletionWorker } = registryKeys;
    pending = await redis.zcard(pendingDeletions);
    const isHidden = pending === 0 && (await redis.zcard(hiddenDeletions)) > 0;
    const everyMs = isHidden ? erasures.checkEveryMs : erasures.checkWhenIdleEveryMs;
    if (pending === 0 && performance.now() < erasureCheckedAtMs + everyMs) return;
    // A new request may not need the unreachable server.
    if (pending === before && performance.now() < restsUntilMs) return;
    erasureCheckedAtMs = performance.now();
    try {
      await withLease(redis, deletionWorker, times, () => runDeletionRound(round));
      failures = 0;
    } catch {
      // The round has logged why.
      failures += 1;
      failedUntilMs = performance.now() + retryPauseMs(failures);
    }
  };
}
