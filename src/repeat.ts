// Work that a process repeats at an interval.

export type Repeated = {
  readonly work: () => Promise<unknown>;
  readonly everyMs: number;
  /** Called when a run fails, which does not stop the next; without it, a failure means nothing. */
  readonly failed?: (error: unknown) => void;
};

export type Repetition = {
  /** Settles when the first run has ended. */
  readonly first: Promise<void>;
  /** Starts no further run; settles when the last one has ended. */
  readonly stop: () => Promise<void>;
};

/** Starts a run at once and then every `everyMs`, unless the last one is still running. */
export function repeat({ work, everyMs, failed = () => undefined }: Repeated): Repetition {
  let running: Promise<void> | undefined;
  const run = () => {
    running ??= work()
      .then(() => undefined, failed)
      .finally(() => {
        running = undefined;
      });
    return running;
  };
  const first = run();
  const timer = setInterval(run, everyMs);
  const stop = async () => {
    clearInterval(timer);
    await running;
  };
  return { first, stop };
}
