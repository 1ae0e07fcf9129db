// fast-check with the seed of this run. Tests import it from here.

import fc from 'fast-check';
import { isUsualTier } from '../runner/lanes.js';
import { testSeed } from './seed.js';

fc.configureGlobal({ seed: testSeed });

/** How many runs a long random test makes: a fifth in `npm test`, whose seed is always the same, and all elsewhere. */
export function runs(all: number): number {
  return isUsualTier ? Math.ceil(all / 5) : all;
}

export default fc;
