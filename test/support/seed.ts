// The seed of every random test. It is fixed, so that a run of the suite tells of the code and not of luck. To look
// further: `TEST_SEED=7 npm test -- NAME`, or `TEST_SEED=new`, which draws one. A failure prints it.

import { randomInt } from 'node:crypto';

export const testSeed = readSeed(process.env.TEST_SEED ?? '1');

function readSeed(text: string): number {
  if (text === 'new') return randomInt(2 ** 31);
  if (/^\d{1,10}$/.test(text)) return Number(text);
  throw new Error(`TEST_SEED is ${JSON.stringify(text)}: give a number, or "new"`);
}
