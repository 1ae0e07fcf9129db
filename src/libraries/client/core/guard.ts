// Keeps faults of the library out of the page, and reports them to the developer.

import { define } from './sanitize.js';

/** Keeps every fault of the library, including those that a page causes in it, out of the page. */
export function createGuard(show: (line: string) => void) {
  let warning = false;

  function warn(line: string): void {
    // If the page's console calls the library, this would otherwise never end.
    if (warning) return;
    warning = true;
    try {
      show(`Sluice: ${line}`);
    } catch {
      // The console itself throws, so the error cannot be reported.
    } finally {
      warning = false;
    }
  }

  function guarded<T>(operation: () => T): T | undefined {
    try {
      return operation();
    } catch {
      warn('failed inside the library.');
      return undefined;
    }
  }

  return { warn, guarded };
}

/** The operations, guarded so that none throws. A caller may store one and call it without its object. */
export function protect<T extends object>(guarded: (call: () => unknown) => unknown, operations: T): T {
  const safe = {};
  for (const name of Object.keys(operations)) {
    const operation = operations[name as keyof T] as (...args: unknown[]) => unknown;
    define(safe, name, (...args: unknown[]) => guarded(() => operation(...args)));
  }
  return safe as T;
}

/** Counts dropped messages, and reports them from time to time. */
export function createDropCount(warn: (line: string) => void) {
  let count = 0;
  let lastReason: string | undefined;
  let untold = 0;
  return {
    add(more: number, reason: string): void {
      if (more === 0) return;
      count += more;
      untold += more;
      if (reason === lastReason && untold < tellEvery) return;
      warn(`dropped ${untold} message${untold === 1 ? '' : 's'}, ${count} in all: ${reason}`);
      lastReason = reason;
      untold = 0;
    },
    count: () => count,
  };
}

const tellEvery = 100;
