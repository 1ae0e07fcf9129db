// Calls the app's adapters. Whatever an adapter does, the app goes on.

/** The adapter's result; undefined, and a warning that names the adapter, when it threw. */
export function attempt<T>(warn: (line: string) => void, adapterName: string, call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    warn(`the adapter ${adapterName} failed: ${error instanceof Error ? error.message : 'it threw'}.`);
    return undefined;
  }
}
