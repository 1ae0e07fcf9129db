// Reading values of options.

import { BenchError } from './failure.js';

/** Throws BenchError, which names the option, unless the text is a whole number above 0. */
export function positive(name: string, text: string): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < 1) {
    throw new BenchError(`${name} must be a whole number above 0, not ${JSON.stringify(text)}`);
  }
  return number;
}
