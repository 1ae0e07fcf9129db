// fast-check with the seed of this run. Tests import it from here.

import fc from 'fast-check';
import { testSeed } from './seed.js';

fc.configureGlobal({ seed: testSeed });

export default fc;
