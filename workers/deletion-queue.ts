// The queue of deletions: one job, a round, while requests are pending. All requests share a round, and so its mutations.

import { registryKeys } from '../src/redis/keys.js';
import { erasures } from '../src/tuning.js';
import type { WorkerContext } from './context.js';
import { runDeletionRound } from './delete.js';
import { deletionJobOptions, deletionQueueName, serveQueue, serversAwaitedMs } from './queues.js';
import type { RoundOptions } from './round/round.js';

/** An interrupted restore keeps rounds from beginning until somebody continues it. */
const restoreSaidEveryMs = 60_000;

/** Starts to run rounds of deletions. `onCallbacksDue` gets the completed requests whose accounts want to be called. */
export function serveDeletions(context: WorkerContext, onCallbacksDue: RoundOptions['onCallbacksDue']) {
  const { redis, config, log } = context;
  let pending = 0;
  let roundAddedAtMs = 0;
  let hiddenCheckedAtMs = 0;
  // Rounds rest while all requests wait for unreachable servers: that may last for hours, and each round reads the whole registry.
  let restsUntilMs = 0;
  const refused = new Set<string>();
  const onServersAwaited = () => {
    restsUntilMs = performance.now() + serversAwaitedMs;
  };
  let restoreSaidAtMs = Number.NEGATIVE_INFINITY;
  const onRestoreAwaited = () => {
    if (performance.now() < restoreSaidAtMs + restoreSaidEveryMs) return;
    restoreSaidAtMs = performance.now();
    log.warn(
      'deletions wait while a backup is being restored; if its restore was interrupted, "npm run admin -- backup restore NAME --yes" continues it',
    );
  };
  const awaited = { onServersAwaited, onRestoreAwaited };
  const options = { ...context, ...awaited, erasure: config.erasure, refused, onCallbacksDue };
  const round = () => runDeletionRound(options);
  const { queue, ...served } = serveQueue(context, deletionQueueName, 'registry', round, { concurrency: 1 });
  return {
    ...served,
    /**
     * Adds a round if requests are pending, and from time to time to erase what rounds have masked. The job has a fixed id: so there is one
     * round at a time, and adding it again changes nothing.
     */
    addRoundIfPending: async () => {
      const before = pending;
      pending = await redis.zcard(registryKeys.pendingDeletions);
      if (pending === 0) {
        if (performance.now() < hiddenCheckedAtMs + erasures.checkEveryMs) return;
        hiddenCheckedAtMs = performance.now();
        const isIdle = (await redis.zcard(registryKeys.hiddenDeletions)) === 0;
        if (isIdle && performance.now() < roundAddedAtMs + erasures.checkWhenIdleEveryMs) return;
      }
      // A new request may not need the unreachable server.
      if (pending === before && performance.now() < restsUntilMs) return;
      roundAddedAtMs = performance.now();
      hiddenCheckedAtMs = roundAddedAtMs;
      await queue.add('round', {}, deletionJobOptions);
      if ((await queue.getFailedCount()) > 0) await queue.retryJobs({ state: 'failed' });
    },
  };
}
