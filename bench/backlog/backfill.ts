// How fast does history load? The import program loads the 3 million flights of vega-datasets (US domestic, January to June
// 2001). Afterwards ClickHouse must hold every flight once, with its delay.

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { tempDir } from '../../harness/temp-dir.js';
import type { Context } from '../context.js';
import { type ProgramRun, runProgram } from '../deployment/program.js';
import { BenchError } from '../failure.js';

const root = new URL('../../', import.meta.url);
const file = fileURLToPath(new URL('../node_modules/vega-datasets/data/flights-3m.parquet', root));
const program = fileURLToPath(new URL('src/import/main.js', root));
/** What the file holds: flights, airports of origin, and the sum of all delays in minutes. */
const expected = { events: 3_000_000, origins: 229, delay: 20_003_603 };

/** Rejects unless ClickHouse holds exactly what the file holds. */
export async function runBackfill({ deployment }: Context): Promise<ProgramRun> {
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
  const args = [program, file, ...Object.entries(options).flatMap(([name, value]) => [`--${name}`, value])];
  const run = await runProgram(deployment, appId, args, expected.events);
  const [stored] = await deployment.rows<{ origins: number; delay: number }>(
    `SELECT toUInt32(uniqExact(identity)) AS origins, sum(toFloat64OrZero(properties['delay'])) AS delay
      FROM events WHERE app_id = '${appId}' AND event = 'Flight'`,
  );
  if (stored?.origins !== expected.origins || stored.delay !== expected.delay) {
    throw new BenchError(`ClickHouse holds ${JSON.stringify(stored)}, the file ${JSON.stringify(expected)}`);
  }
  return run;
}
