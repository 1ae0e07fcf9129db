// The second and third passing of every crash point in the code, and the first one of those that the tests of their subjects cover. Third
// passings in rounds of deletions would take minutes more, so only `npm run chaos -- --crash-points` has them.

import { laterCrashes } from '../chaos/faults-crashes.js';
import { crashSchedules } from '../chaos/schedule.js';
import { testCrashes } from '../support/crash-rounds.js';

testCrashes(crashSchedules(laterCrashes));
