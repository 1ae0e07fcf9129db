// The runtime of a surface: its clock, its random numbers, its console. The platform's are the defaults.

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
  /** Undefined where there is no cryptographic source: a weaker one would give two devices one user. */
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
