// How does a deletion affect the ingestion beside it? One request deletes one percent of the users of a filled table
// while single events come at half of the highest rate.

import { randomBytes } from 'node:crypto';
import { mergesEnded } from '../deployment/stored.js';
import type { Options } from '../options.js';
import type { Progress } from '../progress.js';
import { startDeletionDeployment } from './client.js';
import { type Load, sendIngestion } from './load.js';
import { memberOfSet, Population } from './population.js';
import { type BulkRun, runBulk } from './runs.js';

export type DeletionBesideResult = {
  readonly events: number;
  readonly ratePerSecond: number;
  readonly before: Load;
  readonly meanwhile: Load;
  readonly run: BulkRun;
};

const set = 1;
const runsBefore = 4;
/** The population grows by whole thousands of customers with ten events each. */
const eventsStep = 10_000;

/** Rejects if a row of a target is left, another row is gone, or an acknowledged event is not stored. */
export async function runDeletionBeside(options: Options, progress: Progress): Promise<DeletionBesideResult> {
  const deployed = await startDeletionDeployment();
  try {
    const { deployment, appIds } = deployed;
    const letters = Array.from(randomBytes(40), (byte) => String.fromCharCode(97 + (byte % 26))).join('');
    const markers = new Map([[memberOfSet(set, 5), `${letters}@example.com`]]);
    const population = new Population({ deployment, appIds, markers });
    const events = Math.ceil(options.deletionEvents / eventsStep) * eventsStep;
    await population.fill(events);
    await mergesEnded(deployment);
    progress.say(`deletion-beside: ${events} events of ${population.customers} users are stored`);
    const ingestion = await sendIngestion(deployed, options.rate);
    const before = await ingestion.measure(runsBefore);
    progress.say(`deletion-beside: ${ingestion.ratePerSecond} events per second`);
    const going = ingestion.start();
    const run = await runBulk({ deployed, population, markers }, population.customersOfSet(set), going);
    const meanwhile = await going.stop();
    await ingestion.assertStored(population.lastSegment);
    return { events, ratePerSecond: ingestion.ratePerSecond, before, meanwhile, run };
  } finally {
    await deployed.stop();
  }
}
