// How fast do programs send, on the same machine as the service? The import program loads the 3 million flights of vega-datasets (US
// domestic, January to June 2001). A process with the library for servers calls `track` as fast as the library accepts it. Afterwards
// ClickHouse must have every event once, and every flight with its delay.

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { tempDir } from '../../test/harness/temp-dir.js';
import type { Context } from '../context.js';
import { runProgram } from '../deployment/program.js';
import { BenchError } from '../failure.js';

const pathOf = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const flightsFile = pathOf('../../../node_modules/vega-datasets/data/flights-3m.parquet');
/** The contents of the file: flights, airports of origin, and the sum of all delays in minutes. */
const flights = { events: 3_000_000, origins: 229, delay: 20_003_603 };
/** How many events the producer sends before the clock starts, so that V8 compiles what both sides run often. */
const warmUpEvents = 50_000;

/** Rejects unless ClickHouse has exactly the contents of the file. */
export async function runBackfill({ deployment }: Context) {
  const [appId = ''] = await deployment.addEnvironments(1, 'none');
  const dir = tempDir('backfill');
  const options = {
    'app-id': appId,
    url: deployment.url,
    event: 'Flight',
    identity: 'origin',
    timestamp: 'date',
    'time-zone': 'UTC',
    state: join(dir, 'state'),
    rejects: join(dir, 'rejects'),
  };
  const given = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
  const args = [pathOf('../../src/import/main.js'), flightsFile, ...given];
  const run = await runProgram(deployment, appId, args, flights.events);
  const [stored] = await deployment.rows<{ origins: number; delay: number }>(
    `SELECT toUInt32(uniqExact(identity)) AS origins, sum(toFloat64OrZero(properties['delay'])) AS delay
      FROM events WHERE app_id = '${appId}' AND event = 'Flight'`,
  );
  if (stored?.origins !== flights.origins || stored.delay !== flights.delay) {
    throw new BenchError(`ClickHouse holds ${JSON.stringify(stored)}, the file ${JSON.stringify(flights)}`);
  }
  return run;
}

export async function runProducer({ deployment, options }: Context) {
  const [appId = ''] = await deployment.addEnvironments(1, 'none');
  const produce = (first: number, events: number) => {
    const args = [pathOf('producer-process.js'), deployment.url, appId, String(first), String(events)];
    return runProgram(deployment, appId, args, events, first);
  };
  await produce(0, warmUpEvents);
  const run = await produce(warmUpEvents, options.producerEvents);
  /** The most memory that the producer used, in bytes. */
  const producerBytes = Number(run.output);
  return { ...run, producerBytes };
}
