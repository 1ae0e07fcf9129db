// The deployment of a test file. Whoever ends or pauses a process, looks into it, moves a clock, or counts what is not of the file's
// environments has its own. All others share one, each with accounts of its own: `npm test` starts it once for its run.

import { after } from 'node:test';
import { type Deployment, type SluiceHandle, type SluiceOptions, startSluice } from '../harness/sluice.js';
import { runsSluice, toShare } from '../runner/share-sluice.js';

/** Both are called while the test's file is loaded, and end what they start after its tests. */
export async function ownSluice(options?: SluiceOptions): Promise<SluiceHandle> {
  const sluice = await startSluice(options);
  after(() => sluice.stop());
  return sluice;
}

/** With two API processes, a worker, and an app_id that is the file's own. A file that runs by itself starts it. */
export async function sharedSluice(): Promise<Deployment> {
  return (await runsSluice()) ?? ownSluice(toShare);
}
