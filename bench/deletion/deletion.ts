// How long does a deletion take, and what does it cost? Ten thousand users of a million with ten million events, idle and
// under load; one user, whose rows lie in many parts or in one; a thousand requests in a minute. Every run ends with a
// comparison: nothing of the targets is left, and nothing of anybody else has changed.

import { randomBytes } from 'node:crypto';
import { parseArgs } from 'node:util';
import { mergesEnded } from '../deployment/stored.js';
import { BenchError } from '../failure.js';
import { describeMachine } from '../machine.js';
import { positive } from '../options.js';
import { type DeletionDeployment, startDeletionDeployment } from './client.js';
import { type Ingestion, sendIngestion } from './load.js';
import { lonersPerInsert, memberOfSet, Population } from './population.js';
import { type DeletionResults, deletionReport, writeDeletionResults } from './report.js';
import { type BulkRun, type DeletionContext, runBulk, runMany, runOne } from './runs.js';

const names = ['one', 'bulk', 'bulk-load', 'many'] as const;
type Name = (typeof names)[number];
const standardEvents = 10_000_000;
const sizeShares = [0.1, 0.3, 1];

export const deletionUsage = `  deletion   time and cost of deletions through the API; starts a deployment of its own
    --events N       of a tenth as many users, in steps of 10000 (10000000)
    --repeats N      runs of one user each at each size, of which the median is reported (5)
    --requests N     of one user each within a minute (1000)
    --rate N         events a second during a deletion (half of the highest rate found)
    --only NAMES     of ${names.join(', ')}
                     those named, with commas between
  Results are written only by a run without options.`;

type Options = {
  readonly events: number;
  readonly repeats: number;
  readonly requests: number;
  readonly rate: number | undefined;
  readonly wanted: (name: Name) => boolean;
  readonly standard: boolean;
};

/** Sets of customers; each kind of run deletes one of them. */
const sets = { bulk: 1, bulkLoad: 2, many: 3, one: 10 };

/** Runs the scenario and writes its results; rejects if a run left a row of a target or changed another row. */
export async function deletion(args: string[]): Promise<void> {
  const options = readOptions(args);
  const deployed = await startDeletionDeployment();
  try {
    const results = await runAll(deployed, options, args);
    process.stdout.write(`\n${deletionReport(results)}`);
    if (options.standard) writeDeletionResults(results);
  } finally {
    await deployed.stop();
  }
}

async function runAll(
  deployed: DeletionDeployment,
  options: Options,
  args: readonly string[],
): Promise<DeletionResults> {
  const { events, repeats, wanted } = options;
  const markers = new Map(
    [sets.bulk, sets.bulkLoad].map((set) => [memberOfSet(set, 5), `${randomLetters(40)}@example.com`]),
  );
  const { deployment, appIds } = deployed;
  const population = new Population({ deployment, appIds, markers });
  const context: DeletionContext = { deployed, population, markers };
  const machine = await describeMachine(deployment);

  const one: DeletionResults['one'][number][] = [];
  for (const share of wanted('one') ? sizeShares : [1]) {
    await population.fill(Math.round((events * share) / 10_000) * 10_000);
    await mergesEnded(deployment);
    say(`${population.events} events of ${population.customers} customers`);
    if (!wanted('one')) continue;
    const size = sizeShares.indexOf(share);
    const everywhere = [];
    for (let repeat = 0; repeat < repeats; repeat += 1) {
      // The last customers that were added: their events are in all inserts since the previous size.
      const customer = memberOfSet(sets.one + size, population.customers / 100 - 1 - repeat);
      everywhere.push(await runOne(context, population.nameOf(customer)));
      say(`one user in many parts: ${JSON.stringify(everywhere.at(-1))}`);
    }
    const inOnePart = [];
    for (let repeat = 0; repeat < Math.min(repeats, lonersPerInsert); repeat += 1) {
      inOnePart.push(await runOne(context, population.loner(population.inserts - 1, repeat)));
      say(`one user in one part: ${JSON.stringify(inOnePart.at(-1))}`);
      const { partsRewritten } = inOnePart.at(-1) ?? {};
      if (partsRewritten !== 1) throw new BenchError(`${partsRewritten} parts were rewritten for one`);
    }
    one.push({ events: population.events, everywhere, inOnePart });
  }

  let bulk: BulkRun | undefined;
  if (wanted('bulk')) {
    bulk = await runBulk(context, population.customersOfSet(sets.bulk));
    say(`many users: ${JSON.stringify(bulk)}`);
  }
  let bulkLoad: DeletionResults['bulkLoad'];
  if (wanted('bulk-load')) {
    const ingestion = await sendIngestion(deployed, options.rate);
    bulkLoad = await runBulkUnderLoad(context, ingestion);
    say(`many users under load: ${JSON.stringify(bulkLoad)}`);
  }
  const many = wanted('many')
    ? await runMany(context, population.customersOfSet(sets.many, options.requests))
    : undefined;
  if (many !== undefined) say(`requests of one user each: ${JSON.stringify(many)}`);
  return {
    machine,
    options: args.join(' '),
    events: population.events,
    customers: population.customers,
    one,
    bulk,
    bulkLoad,
    many,
  };
}

async function runBulkUnderLoad(
  context: DeletionContext,
  ingestion: Ingestion,
): Promise<DeletionResults['bulkLoad']> {
  const before = await ingestion.measure(4);
  const going = ingestion.start();
  const run = await runBulk(context, context.population.customersOfSet(sets.bulkLoad), going);
  const meanwhile = await going.stop();
  await ingestion.assertStored(context.population.lastSegment);
  return { ratePerSecond: ingestion.ratePerSecond, before, meanwhile, run };
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function randomLetters(count: number): string {
  return Array.from(randomBytes(count), (byte) => String.fromCharCode(97 + (byte % 26))).join('');
}

function readOptions(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      events: { type: 'string', default: String(standardEvents) },
      repeats: { type: 'string', default: '5' },
      requests: { type: 'string', default: '1000' },
      rate: { type: 'string' },
      only: { type: 'string', default: names.join(',') },
    },
  });
  const only = values.only.split(',');
  for (const name of only) {
    if (!(names as readonly string[]).includes(name)) {
      throw new BenchError(`--only takes ${names.join(', ')}, not ${name}`);
    }
  }
  const events = positive('--events', values.events);
  if (events % 10_000 !== 0) throw new BenchError('--events must be a multiple of 10000');
  return {
    events,
    repeats: positive('--repeats', values.repeats),
    requests: positive('--requests', values.requests),
    rate: values.rate === undefined ? undefined : positive('--rate', values.rate),
    wanted: (name) => only.includes(name),
    standard: args.length === 0,
  };
}
