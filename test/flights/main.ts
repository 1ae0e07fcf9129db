// `npm run flights -- [--rows N]`: imports the 3 million flights of vega-datasets with keys, then again, and once more after Redis was
// emptied and restored. The second and third time half of them have other values. Redis forgets keys all the time. Afterwards ClickHouse
// must hold exactly the values that it held after the first import.

import { execFile } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { columns } from '../../src/clickhouse/tables.js';
import { openInputs } from '../../src/import/inputs.js';
import { readRows } from '../../src/import/rows.js';
import { utc } from '../../src/import/zones.js';
import { shardKeys } from '../../src/redis/keys.js';
import { createEnvironment, unlimited } from '../harness/accounts.js';
import { forgetKeys } from '../harness/forgotten-keys.js';
import { untilStored } from '../harness/ingestion.js';
import { readOptions } from '../harness/options.js';
import { withRedis } from '../harness/redis-client.js';
import { startRedis, startSluice } from '../harness/services.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';

const values = readOptions('flights', { rows: { type: 'string', default: '3000000' } });
const rowsMax = Number(values.rows);
if (!/^[1-9]\d{0,6}$/.test(values.rows)) {
  process.stderr.write('flights: --rows must be a whole number from 1 to 9999999\n');
  process.exit(2);
}
// The exit handlers end the services and remove their data.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));

const parquet = fileURLToPath(
  new URL('../../../node_modules/vega-datasets/data/flights-3m.parquet', import.meta.url),
);
const program = fileURLToPath(new URL('../../src/import/main.js', import.meta.url));
/** How often and how far the clock of claims is advanced, so that Redis forgets each key after some seconds. */
const forgetEveryMs = 1_000;
const forgetMinutes = 10;
const storedMsMax = 600_000;

const dir = tempDir('flights');
const files = { first: join(dir, 'first.ndjson'), changed: join(dir, 'changed.ndjson') };
await writeFiles();
// A Redis that syncs, as in production.
const redis = await startRedis();
const sluice = await startSluice({ redis, env: { CLAIM_BYTES_MAX: String(1024 ** 2) } });
const appId = await createEnvironment(sluice, ...unlimited);
const ageing = setInterval(() => {
  void withRedis(sluice, (connection) =>
    connection.hincrby(shardKeys.state(0), 'claim_clock_us', forgetMinutes * 60_000_000),
  );
}, forgetEveryMs);

const first = await load('first', files.first);
await withRedis(sluice, forgetKeys);
const second = await load('again, half of them changed', files.changed);
await withRedis(sluice, (connection) => connection.flushall());
await sluice.admin('state', 'reload');
const third = await load('once more, after Redis was lost', files.changed);
clearInterval(ageing);

const index = (await sluice.admin('keys-index', 'status')) as { keys: number; bytes: number };
say(`the index has ${index.keys} keys in ${index.bytes} bytes`);
const isKept = first.rows === String(rowsMax) && [second, third].every((state) => isEqual(state, first));
say(isKept ? 'each flight is stored once, with its first values' : 'NOT as after the first import');
await sluice.stop();
await redis.remove();
removeTempDir(dir);
process.exit(isKept ? 0 : 1);

type Stored = { readonly rows: string; readonly sum: string; readonly xor: string };

function isEqual(one: Stored, other: Stored): boolean {
  return one.rows === other.rows && one.sum === other.sum && one.xor === other.xor;
}

/** Imports a file; settles with how many events are stored then, and a hash of all their values and stamps. */
async function load(what: string, file: string): Promise<Stored> {
  const startedMs = performance.now();
  const state = join(dir, `state ${what}`);
  const options = {
    'app-id': appId,
    url: sluice.baseUrl,
    event: 'Flight',
    identity: 'origin',
    timestamp: 'date',
    key: 'number',
    state,
    rejects: `${state} rejects`,
  };
  const args = [program, file, ...Object.entries(options).flatMap(([name, value]) => [`--${name}`, value])];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  await untilStored(sluice, storedMsMax);
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(0);
  const [stored] = await sluice.rows<Stored>(`SELECT toString(count()) AS rows, toString(sum(hash)) AS sum,
      toString(groupBitXor(hash)) AS xor
    FROM (SELECT sipHash64((${columns.events.join(', ')})) AS hash FROM stored_events WHERE app_id = '${appId}')`);
  if (stored === undefined) throw new Error('ClickHouse does not count');
  say(`${what}: ${stdout.trim()} in ${seconds} s; ${stored.rows} stored, hash ${stored.sum} ${stored.xor}`);
  return stored;
}

async function writeFiles(): Promise<void> {
  await Promise.all([write(files.first, false), write(files.changed, true)]);
}

async function write(file: string, isChanged: boolean): Promise<void> {
  const [input] = await openInputs([parquet], undefined);
  if (input === undefined) throw new Error('there are no flights');
  const lines = async function* () {
    const options = {
      after: 0,
      columns: [],
      takesRest: true,
      timeColumn: 'date',
      zone: utc,
      onShare: () => undefined,
    };
    for await (const rows of readRows(input, options)) {
      const some = rows.slice(0, Math.max(0, rowsMax - ((rows[0]?.place ?? 1) - 1)));
      if (some.length === 0) return;
      yield some
        .map(({ place, value }) => {
          const flight = { number: place, ...value };
          const change = isChanged && place % 2 === 1 ? { destination: 'changed', delay: place } : {};
          return `${JSON.stringify({ ...flight, ...change })}\n`;
        })
        .join('');
    }
  };
  await pipeline(Readable.from(lines()), createWriteStream(file));
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
