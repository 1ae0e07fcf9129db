// Ends a process in good order: what waits is sent, and what was reported is printed, before the signal has its usual effect.

export type SignalOptions = {
  /** Default: SIGTERM and SIGINT. */
  readonly signals?: readonly NodeJS.Signals[];
  /** How long what waits may take; default 10 s, as long as most platforms wait before they kill. */
  readonly deadlineMs?: number;
};

/** Returns how to undo it. */
export function closeOnSignals(
  close: (deadlineMs?: number) => Promise<unknown>,
  { signals = ['SIGTERM', 'SIGINT'], deadlineMs }: SignalOptions = {},
): () => void {
  function onSignal(signal: NodeJS.Signals): void {
    void close(deadlineMs).finally(() => {
      undo();
      // If there are other listeners, they decide whether the process ends.
      if (process.listenerCount(signal) === 0) process.kill(process.pid, signal);
    });
  }

  function undo(): void {
    for (const signal of signals) process.removeListener(signal, onSignal);
  }

  for (const signal of signals) process.on(signal, onSignal);
  return undo;
}
