// The queue of deletions: one job, a round, while requests are pending. All requests share a round, and so its mutations.

import { registryKeys } from '../src/redis/keys.js';
import { erasures } from '../src/tuning.js';
import type { WorkerContext } from './context.js';
import { runDeletionRound } from './delete.js';
import {
  deletionJobOptions,
  deletionQueueName,
  type ServedQueue,
  serveQueue,
  serversAwaitedMs,
} from './queues.js';
import type { RoundOptions } from './round/round.js';

export type DeletionWork = ServedQueue & {
  /** Adds a round if requests are pending, and from time to time to erase what rounds have masked. */
  readonly addRoundIfPending: () => Promise<void>;
};

/** Starts to run rounds of deletions. `onCallbacksDue` gets the completed requests whose accounts want to be called. */
export function serveDeletions(
  context: WorkerContext,
  onCallbacksDue: RoundOptions['onCallbacksDue'],
): DeletionWork {
  const { redis, config } = context;
  let pending = 0;
  let erasureCheckedAtMs = 0;
  // Rounds rest while all requests wait for unreachable servers: that may last for hours, and each round reads the whole registry.
  let restsUntilMs = 0;
  const refused = new Set<string>();
  const onServersAwaited = () => {
    restsUntilMs = performance.now() + serversAwaitedMs;
  };
  const options = { ...context, erasure: config.erasure, refused, onServersAwaited, onCallbacksDue };
  const round = () => runDeletionRound(options);
  const { queue, ...served } = serveQueue(context, deletionQueueName, 'registry', round, { concurrency: 1 });
  return {
    ...served,
    // The job has a fixed id: so there is one round at a time, and adding it again changes nothing.
    addRoundIfPending: async () => {
      const before = pending;
      const { pendingDeletions, hiddenDeletions } = registryKeys;
      pending = await redis.zcard(pendingDeletions);
      const onlyHidden = pending === 0 && (await redis.zcard(hiddenDeletions)) > 0;
      const everyMs = onlyHidden ? erasures.checkEveryMs : erasures.checkWhenIdleEveryMs;
      if (pending === 0 && performance.now() < erasureCheckedAtMs + everyMs) return;
      // A new request may not need the unreachable server.
      if (pending === before && performance.now() < restsUntilMs) return;
      erasureCheckedAtMs = performance.now();
      await queue.add('round', {}, deletionJobOptions);
      if ((await queue.getFailedCount()) > 0) await queue.retryJobs({ state: 'failed' });
    },
  };
}
