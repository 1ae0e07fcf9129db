// How long does a deletion take, and what does it cost? Scenarios on one deployment: one user, with rows in many parts or in one; one
// percent of the users in one request, idle and with ingestion at half of the highest rate; a thousand requests in a minute. After every
// run no row of the targets may be left, and no other row may have changed.

import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { Context } from '../context.js';
import { prepareIngestion } from '../deployment/ingestion.js';
import { mergesEnded } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { figure } from '../figures.js';
import { rateOfHalfLoad } from '../latency/curve.js';
import { type Spread, spreadOf } from '../load/histogram.js';
import { latenciesOf, type MergedSecond } from '../load/second.js';
import { addEnvironment, connectDeletionApi } from './api.js';
import { lonersPerInsert, memberOfSet, Population } from './population.js';
import { type BulkRun, type DeletionContext, type OneRun, runBulk, runMany, runOne } from './runs.js';

export const deletionNames = ['deletion-one', 'deletion-bulk', 'deletion-beside', 'deletion-many'] as const;

const sizeShares = [0.1, 0.3, 1];
/** The population grows by whole thousands of customers with ten events each. */
const eventsStep = 10_000;
const beforeSeconds = 15;
/** The first part of a load is left out, since its connections are new. */
const newMs = 3_000;
/** The first set of customers of each scenario; every run deletes another set. */
const sets = { bulk: 1, beside: 11, many: 21, one: 22 };
const repeatsMax = 10;

export async function runDeletions(context: Context) {
  const { deployment, options, progress } = context;
  const repeats = Math.min(options.repeats, repeatsMax);
  const markers = new Map<number, string>();
  for (let run = 0; run < repeats; run += 1) {
    for (const set of [sets.bulk, sets.beside]) {
      markers.set(memberOfSet(set + run, 5), `${randomLetters(40)}@example.com`);
    }
  }
  const api = await connectDeletionApi(deployment);
  const population = new Population(deployment, api.appIds, options.deletionEvents, markers);
  const deletion: DeletionContext = { deployment, api, population, markers };
  const wanted = (name: (typeof deletionNames)[number]) => context.wanted.has(name);

  const one: Awaited<ReturnType<typeof runOnes>>[] = [];
  for (const [size, share] of wanted('deletion-one') ? sizeShares.entries() : [[0, 1] as const]) {
    await population.fill(Math.ceil((options.deletionEvents * share) / eventsStep) * eventsStep);
    await mergesEnded(deployment);
    progress.say(`${population.events} events of ${population.customers} customers`);
    if (wanted('deletion-one')) one.push(await runOnes(deletion, sets.one + size, repeats));
  }
  const bulk: BulkRun[] = [];
  for (let run = 0; wanted('deletion-bulk') && run < repeats; run += 1) {
    bulk.push(await runBulk(deletion, population.customersOfSet(sets.bulk + run)));
    progress.say(`one percent of the users: complete after ${figure(bulk.at(-1)?.completeSeconds)} s`);
  }
  const beside = wanted('deletion-beside') ? await runBeside(context, deletion, repeats) : undefined;
  const many = wanted('deletion-many')
    ? await runMany(deletion, population.customersOfSet(sets.many, options.deletionRequests))
    : undefined;
  return {
    events: population.events,
    customers: population.customers,
    ...(one.length > 0 && { one }),
    ...(bulk.length > 0 && { bulk }),
    ...(beside && { beside }),
    ...(many && { many }),
  };
}

async function runOnes(context: DeletionContext, set: number, repeats: number) {
  const { population } = context;
  const everywhere: OneRun[] = [];
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    // Customers who were added last: all inserts since the previous size contain events of theirs.
    const customer = memberOfSet(set, population.customers / 100 - 1 - repeat);
    everywhere.push(await runOne(context, population.nameOf(customer)));
  }
  const inOnePart: OneRun[] = [];
  for (let repeat = 0; repeat < Math.min(repeats, lonersPerInsert); repeat += 1) {
    const run = await runOne(context, population.loner(population.inserts - 1, repeat));
    if (run.partsRewritten !== 1) throw new BenchError(`${run.partsRewritten} parts were rewritten for one`);
    inOnePart.push(run);
  }
  return { events: population.events, everywhere, inOnePart };
}

/** Deletes while events arrive. The latencies are those of the events' acknowledgements, from when each request was due. */
async function runBeside(context: Context, deletion: DeletionContext, repeats: number) {
  const { deployment, options, progress } = context;
  const ratePerSecond = await rateOfHalfLoad(context);
  const found = { runs: [] as BulkRun[], beforeMs: [] as Spread[], meanwhileMs: [] as Spread[] };
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    const appId = await addEnvironment(deployment.sluice, `beside ${repeat}`);
    const ingestion = await prepareIngestion(deployment, appId, ratePerSecond, options.threads);
    let [startedMs, fromMs, toMs] = [0, 0, 0];
    const beside = {
      begin: async () => {
        startedMs = Date.now();
        ingestion.begin();
        await pause(beforeSeconds * 1_000);
        fromMs = Date.now();
      },
      completed: () => {
        toMs = Date.now();
      },
      end: async () => {
        const { seconds } = await ingestion.end();
        found.beforeMs.push(between(seconds, startedMs + newMs, fromMs - 1_000));
        found.meanwhileMs.push(between(seconds, fromMs - 1_000, toMs));
      },
    };
    const run = await runBulk(deletion, deletion.population.customersOfSet(sets.beside + repeat), beside);
    found.runs.push(run);
    const [before, meanwhile] = [found.beforeMs, found.meanwhileMs].map((spreads) =>
      figure(spreads.at(-1)?.p99),
    );
    progress.say(
      `deletion beside ${ratePerSecond}/s: complete after ${figure(run.completeSeconds)} s; p99 before ${before}, meanwhile ${meanwhile} ms`,
    );
  }
  return { ratePerSecond, ...found };
}

/** The spread over the seconds that begin between two times. */
function between(seconds: readonly MergedSecond[], fromMs: number, toMs: number): Spread {
  return spreadOf(latenciesOf(seconds.filter(({ atMs }) => atMs >= fromMs && atMs <= toMs)));
}

function randomLetters(count: number): string {
  return Array.from(randomBytes(count), (byte) => String.fromCharCode(97 + (byte % 26))).join('');
}
