// Shuts down cleanly at a signal: waiting records are sent and reports are printed before the signal has its usual effect.

export type SignalOptions = {
  /** Default: SIGTERM and SIGINT. */
  readonly signals?: readonly NodeJS.Signals[];
  /** How many milliseconds that may take; default 10 s, since most platforms then kill the process. */
  readonly deadlineMs?: number;
};

/** Starts to listen for the signals. Returns a function that stops listening. */
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
