// Single events that arrive at a constant rate while something else is measured.

import { allAnswered, prepareLoad } from '../load/threads.js';
import type { Deployment } from './deployment.js';
import { assertStored, untilCounted } from './stored.js';

/**
 * Enough that events are sent when they are due even if an answer takes 30 ms at 16,000 a second. With 128, answers of more than 8 ms held
 * up the sender: beside a deletion at 13,000 a second the p50 since due was 190 ms or more instead of 33 or less.
 */
const connections = 512;

export async function prepareIngestion(deployment: Deployment, appId: string, rate: number, threads: number) {
  const load = await prepareLoad({
    ...{ url: deployment.url, way: 'single', appIds: [appId], connections, rate },
    ...{ seconds: 3_600, threads, sendsAll: true },
  });
  let sending: ReturnType<typeof load.send>;
  return {
    begin: () => {
      sending = load.send();
    },
    /**
     * Stops, and settles with the number of events and the seconds of the load when all are stored. Rejects unless each is stored exactly
     * once.
     */
    end: async () => {
      load.stop();
      const { seconds } = await sending;
      const events = allAnswered(seconds);
      await untilCounted(() => deployment.count(appId), events);
      await assertStored(deployment, appId, { events });
      return { events, seconds };
    },
  };
}
