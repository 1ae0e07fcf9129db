// The first, second and third passing of every crash point in the code, under load and deletions. Third passings in rounds of deletions would
// take minutes more, so only `npm run chaos -- --crash-points` has them. Crashes with a loss of Redis are in `chaos-crash-losses`.

import { crashKinds } from '../chaos/faults.js';
import { slowCrashes } from '../chaos/faults-crashes.js';
import { crashSchedules, losesRedis } from '../chaos/schedule.js';
import { testCrashes } from '../support/crash-rounds.js';

const names = crashKinds.filter((name) => !slowCrashes.has(name));
testCrashes(crashSchedules(names).filter((schedule) => !losesRedis(schedule)));
