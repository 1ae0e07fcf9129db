// Checks the evidence of a round in a thread of its own: that takes minutes for tens of thousands of records, and meanwhile the clients
// of other rounds in this process would stand still.

import { once } from 'node:events';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import type { Broken } from './broken.js';
import { type Counts, countEvidence, type Evidence, findBroken } from './check.js';

export type Checked = { readonly broken: readonly Broken[]; readonly counts: Counts };

export async function checkInThread(evidence: Evidence): Promise<Checked> {
  const thread = new Worker(new URL(import.meta.url), { workerData: evidence });
  // Rejects if the thread fails.
  const [checked] = (await once(thread, 'message')) as [Checked];
  return checked;
}

if (!isMainThread) {
  const evidence = workerData as Evidence;
  parentPort?.postMessage({
    broken: findBroken(evidence),
    counts: countEvidence(evidence),
  } satisfies Checked);
}
