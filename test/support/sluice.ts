// The deployment of a test file. A file has its own if it ends or pauses other processes than an API process, moves a
// clock, or counts things outside of its environments. All others share one, which `npm test` starts once for its run, and create their
// own accounts.

import { after } from 'node:test';
import {
  type ApiHandle,
  type Deployment,
  type SluiceHandle,
  type SluiceOptions,
  startApiOf,
  startSluice,
} from '../harness/sluice.js';
import { sluiceOfRun, toShare } from '../runner/share-sluice.js';

/** Starts a deployment that ends after the file's tests. Call this and `sharedSluice` while the test's file is loaded. */
export async function ownSluice(options?: SluiceOptions): Promise<SluiceHandle> {
  const sluice = await startSluice(options);
  after(() => sluice.stop());
  return sluice;
}

/** The shared deployment: two API processes, a worker, and an app_id of the file's own. A file that runs alone starts it itself. */
export async function sharedSluice(): Promise<Deployment> {
  return (await sluiceOfRun()) ?? ownSluice(toShare);
}

/** The shared deployment, seen through an API process of the file's own: one that it configures, ends, or measures. */
export async function ownApi(env: NodeJS.ProcessEnv = {}): Promise<Deployment & { readonly own: ApiHandle }> {
  const sluice = await sharedSluice();
  const own = await startApiOf(sluice, env);
  after(() => own.stop());
  return { ...sluice, own, api: [own, ...sluice.api], baseUrl: own.baseUrl, adminUrl: own.adminUrl };
}
