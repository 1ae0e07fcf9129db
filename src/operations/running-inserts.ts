// Inserts that had begun before ClickHouse was told to refuse them: it does not end those.

import { AdministrationError } from '../contract/errors.js';
import { stateLoads } from '../tuning.js';
import { untilTrue } from '../wait.js';

/** Settles when none is running. Rejects with AdministrationError if that takes longer than any insert is waited for. */
export async function untilNoInsertRuns(isRunning: () => Promise<boolean>): Promise<void> {
  if (!(await untilTrue(async () => !(await isRunning()), { msMax: stateLoads.insertMsMax })))
    throw new AdministrationError('an insert is still running in ClickHouse; try again when it has ended');
}
