// The seed of every random test. It is fixed, so that the result of a run depends only on the code. `TEST_SEED=7 npm test -- NAME` takes
// another seed, and `TEST_SEED=new` draws one. A failure prints it.

import { randomInt } from 'node:crypto';

export const testSeed = readSeed(process.env.TEST_SEED ?? '1');

function readSeed(text: string): number {
  if (text === 'new') return randomInt(2 ** 31);
  if (/^\d{1,10}$/.test(text)) return Number(text);
  throw new Error(`TEST_SEED is ${JSON.stringify(text)}: give a number, or "new"`);
}
