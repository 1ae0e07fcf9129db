// Notices when the process should end: on SIGTERM, on SIGINT, or when the supervisor that started it is gone; or at its start, when the
// operator has to change something first.

import { AdministrationError } from './contract/errors.js';

/** Settles at the first request to stop. A second one ends the process at once. */
export function stopRequested(): Promise<void> {
  return new Promise((resolve) => {
    let asked = false;
    const stop = () => {
      if (asked) process.exit(1);
      asked = true;
      resolve();
    };
    process.on('SIGTERM', stop);
    process.on('SIGINT', stop);
    if (process.channel !== undefined) process.on('disconnect', () => (asked ? undefined : stop()));
  });
}

/** At the start of a process: prints in one line what the operator has to change, and ends the process. */
export function exitAfter(error: unknown): never {
  if (!(error instanceof AdministrationError)) throw error;
  process.stderr.write(`sluice: ${error.message}\n`);
  process.exit(1);
}
