// Crashes of a restore, and crashes of a worker in a deletion after which Redis is emptied, under load and deletions.

import { crashKinds } from '../chaos/faults.js';
import { crashSchedules, losesRedis } from '../chaos/schedule.js';
import { testCrashes } from '../support/crash-rounds.js';

testCrashes(crashSchedules(crashKinds).filter(losesRedis));
