// Work that a worker repeats at an interval.

import { describeError, type Log } from '../src/log.js';

export type Repeated = {
  readonly work: () => Promise<void>;
  readonly everyMs: number;
  /** Names the work in the log when a run fails. */
  readonly what: string;
  readonly log: Log;
};

/**
 * Starts a run at once and then every `everyMs`, unless the last one is still running. A failed run is logged, and does not stop
 * the next. The returned function stops the repetition, and settles when the last run has ended.
 */
export function repeat({ work, everyMs, what, log }: Repeated): () => Promise<void> {
  let running: Promise<void> | undefined;
  const run = () => {
    running ??= work()
      .catch((error: unknown) => log.warn({ error: describeError(error) }, `${what} failed`))
      .finally(() => {
        running = undefined;
      });
  };
  run();
  const timer = setInterval(run, everyMs);
  return async () => {
    clearInterval(timer);
    await running;
  };
}
