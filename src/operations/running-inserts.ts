// Inserts that began before ClickHouse was told to refuse them: ClickHouse does not end those.

import { AdministrationError } from '../contract/errors.js';
import { stateLoads } from '../tuning.js';
import { untilTrue } from '../wait.js';

/** Settles when no such insert is running. Rejects with AdministrationError after the longest time that any insert is waited for. */
export async function untilNoInsertRuns(isRunning: () => Promise<boolean>): Promise<void> {
  if (!(await untilTrue(async () => !(await isRunning()), { msMax: stateLoads.insertMsMax })))
    throw new AdministrationError('an insert is still running in ClickHouse; try again when it has ended');
}
