// Ends a process in good order at a signal: waiting records are sent and reports printed before the signal has its usual effect.

export type SignalOptions = {
  /** Default: SIGTERM and SIGINT. */
  readonly signals?: readonly NodeJS.Signals[];
  /** How long that may take; default 10 s, since most platforms kill a process after that time. */
  readonly deadlineMs?: number;
};

/** Returns a function that undoes this. */
export function closeOnSignals(
  close: (deadlineMs?: number) => Promise<unknown>,
  { signals = ['SIGTERM', 'SIGINT'], deadlineMs }: SignalOptions = {},
): () => void {
  function onSignal(signal: NodeJS.Signals): void {
    void close(deadlineMs).finally(() => {
      undo();
      // If the signal has other listeners, they decide whether the process ends.
      if (process.listenerCount(signal) === 0) process.kill(process.pid, signal);
    });
  }

  function undo(): void {
    for (const signal of signals) process.removeListener(signal, onSignal);
  }

  for (const signal of signals) process.on(signal, onSignal);
  return undo;
}
