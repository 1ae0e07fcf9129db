// Calls the app's adapters. Whatever an adapter does, the app continues.

/** Calls an adapter and returns its result. If it throws, warns with the adapter's name and returns undefined. */
export function attempt<T>(warn: (line: string) => void, adapterName: string, call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    warn(`the adapter ${adapterName} failed: ${error instanceof Error ? error.message : 'it threw'}.`);
    return undefined;
  }
}
