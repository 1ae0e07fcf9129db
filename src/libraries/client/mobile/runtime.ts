// The platform's runtime: clock, random numbers and console.

import type { Clock, RandomBytes } from '../core/adapters.js';
import type { Fetch } from './adapters.js';

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

export const systemClock: Clock = {
  now: () => Date.now(),
  setTimer(ms, callback) {
    const timer = platform.setTimeout(callback, ms);
    return () => platform.clearTimeout(timer);
  },
};

/** Undefined without a cryptographic source: a weaker one could give two devices the same user. */
export function platformRandomBytes(): RandomBytes | undefined {
  const { crypto } = platform;
  if (crypto?.getRandomValues === undefined) return undefined;
  return (count) => crypto.getRandomValues?.(new Uint8Array(count)) as Uint8Array;
}

/** Shows the developer a line, where there is a console. */
export function warnInConsole(line: string): void {
  platform.console?.warn?.(line);
}
