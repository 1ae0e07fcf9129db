// The runtime of a surface: clock, random numbers and console, by default the platform's.

import type { Clock, RandomBytes } from '../core/adapters.js';
import type { Fetch, RuntimeAdapters } from './adapters.js';

/** The part of the global scope that is used. */
export type Platform = {
  readonly crypto?: { getRandomValues?(bytes: Uint8Array): Uint8Array };
  readonly console?: { warn?(line: string): void };
  readonly AbortController?: new () => { readonly signal: unknown; abort(): void };
  readonly fetch?: Fetch;
  setTimeout(callback: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
};

export const platform = globalThis as unknown as Platform;

export type Runtime = {
  readonly clock: Clock;
  /** Undefined without a cryptographic source: a weaker one could give two devices the same user. */
  readonly randomBytes: RandomBytes | undefined;
  readonly warn: (line: string) => void;
};

/** The given adapters, completed. */
export function runtimeOf({ clock, randomBytes, warn }: RuntimeAdapters): Runtime {
  return {
    clock: clock ?? systemClock,
    randomBytes: randomBytes ?? platformRandomBytes(),
    warn: warn ?? warnInConsole,
  };
}

const systemClock: Clock = {
  now: () => Date.now(),
  setTimer(ms, callback) {
    const timer = platform.setTimeout(callback, ms);
    return () => platform.clearTimeout(timer);
  },
};

function platformRandomBytes(): RandomBytes | undefined {
  const { crypto } = platform;
  if (crypto?.getRandomValues === undefined) return undefined;
  return (count) => crypto.getRandomValues?.(new Uint8Array(count)) as Uint8Array;
}

/** Shows the developer a line, where there is a console. */
export function warnInConsole(line: string): void {
  platform.console?.warn?.(line);
}
