// The 3 million flights of vega-datasets (US domestic, January to June 2001) as events, and their totals. The file is
// Parquet; an embedded ClickHouse of the bench's own reads it and writes the events as JSON, so that the deployment's
// ClickHouse has no part in it.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { credentials } from '../../harness/clickhouse.js';
import { startClickHouse } from '../../harness/services.js';
import { cpuMicroseconds } from '../deployment/processes.js';
import { BenchError } from '../failure.js';

export const flightsInFile = 3_000_000;

/** The totals of the flights of one origin. */
export type OriginSum = { readonly origin: string; readonly flights: number; readonly delay: number };

export type Flights = {
  /**
   * Request bodies of `eventsEach` flights and the number of flights in each, in the order of the file. With `keys` every
   * event carries a key: its position in the file.
   */
  bodies(appId: string, eventsEach: number, keys: boolean): AsyncGenerator<Batch>;
  /** By origin, in ascending order. */
  sums(): Promise<OriginSum[]>;
  /** CPU time in µs that reading has taken so far. */
  cpu(): number;
  stop(): Promise<void>;
};

type Batch = { readonly body: Buffer; readonly events: number };

const path = fileURLToPath(
  new URL('../../../node_modules/vega-datasets/data/flights-3m.parquet', import.meta.url),
);
const lineFeed = 0x0a;
const comma = 0x2c;

/** Opens the first `count` flights of the file. */
export async function openFlights(count: number): Promise<Flights> {
  if (!existsSync(path)) throw new BenchError('vega-datasets is missing: npm ci --include=dev');
  const engine = await startClickHouse();
  // One thread and the same limit, so that every query returns the same flights in the same order.
  const flights = `(SELECT * FROM file('${path}', 'Parquet') LIMIT ${count} SETTINGS max_threads = 1)`;

  async function ask(sql: string): Promise<Response> {
    const reply = await fetch(`${engine.origin}/?default_format=JSONEachRow`, {
      method: 'POST',
      body: sql,
      headers: credentials(engine.tester),
    });
    if (!reply.ok) throw new Error(`ClickHouse answered ${reply.status}: ${await reply.text()}`);
    return reply;
  }

  return {
    async *bodies(appId, eventsEach, keys) {
      const reply = await ask(`SELECT
          'Flight' AS event,
          origin AS identity,
          formatDateTime(date, '%Y-%m-%dT%H:%i:%SZ') AS timestamp,
          ${keys ? "'flight-' || toString(rowNumberInAllBlocks()) AS idempotency_key," : ''}
          CAST((destination, distance, delay), 'Tuple(destination String, distance Int64, delay Int64)') AS properties
        FROM ${flights}
        SETTINGS max_threads = 1, output_format_json_quote_64bit_integers = 0`);
      yield* toBodies(reply.body as unknown as AsyncIterable<Uint8Array>, appId, eventsEach);
    },
    sums: async () => {
      const reply = await ask(
        `SELECT origin, toUInt32(count()) AS flights, toFloat64(sum(delay)) AS delay FROM ${flights}
          GROUP BY origin ORDER BY origin`,
      );
      const lines = (await reply.text()).split('\n').filter((line) => line !== '');
      return lines.map((line) => JSON.parse(line) as OriginSum);
    },
    cpu: () => cpuMicroseconds(engine.pid),
    stop: () => engine.remove(),
  };
}

/** Turns lines of JSON into bodies without parsing them: each line feed becomes the comma between two events. */
async function* toBodies(
  chunks: AsyncIterable<Uint8Array>,
  appId: string,
  eventsEach: number,
): AsyncGenerator<Batch> {
  const head = Buffer.from(`{"app_id":${JSON.stringify(appId)},"events":[`);
  const tail = Buffer.from(']}');
  let parts: Buffer[] = [];
  let events = 0;
  const take = (): Batch => {
    const last = parts.pop() as Buffer;
    const batch = { body: Buffer.concat([head, ...parts, last.subarray(0, -1), tail]), events };
    parts = [];
    events = 0;
    return batch;
  };
  for await (const chunk of chunks) {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let start = 0;
    for (let at = bytes.indexOf(lineFeed); at !== -1; at = bytes.indexOf(lineFeed, at + 1)) {
      bytes[at] = comma;
      events += 1;
      if (events < eventsEach) continue;
      parts.push(bytes.subarray(start, at + 1));
      start = at + 1;
      yield take();
    }
    if (start < bytes.length) parts.push(bytes.subarray(start));
  }
  if (events > 0) yield take();
}
