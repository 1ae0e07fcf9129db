// Every crash point of the code at its second and third passing, and those that tests of their subjects have at their first. Third
// passings in rounds of deletions would take minutes more, so only `npm run chaos -- --crash-points` has them.

import { laterCrashes } from '../chaos/faults-crashes.js';
import { crashSchedules } from '../chaos/schedule.js';
import { testCrashes } from '../support/crash-rounds.js';

testCrashes(crashSchedules(laterCrashes));
