// A process with the engine and without HTTP: makes the table, inserts files, prints what that took.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { baseSettings, writeEngineArguments } from '../../deploy/local/clickhouse/engine-arguments.js';
import { EngineSession } from '../../deploy/local/clickhouse/sessions.js';
import { quote } from '../../deploy/local/clickhouse/sql-tokens.js';
import { insertSettings } from '../../src/clickhouse/store.js';
import { columns } from '../../src/clickhouse/tables.js';

export type DirectTask = {
  readonly dir: string;
  readonly database: string;
  /** Creates the table. */
  readonly statement: string;
  readonly files: readonly { readonly file: string; readonly token: string }[];
  /** The first so many are not measured. */
  readonly warmUp: number;
  readonly atOnce: number;
};

export type DirectResult = {
  readonly seconds: number;
  /** CPU time of the process in µs. */
  readonly cpu: number;
  /** In the table at the end, without markers. */
  readonly rows: number;
};

const task = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8')) as DirectTask;
const settings = baseSettings();
const connectionArgs = writeEngineArguments(join(task.dir, 'engine.xml'));
const sessions = Array.from(
  { length: task.atOnce },
  () => new EngineSession(join(task.dir, 'clickhouse'), connectionArgs, settings),
);
const [first] = sessions as [EngineSession];
await first.run(`CREATE DATABASE ${task.database}`, 'Null');
await first.run(task.statement, 'Null');
for (const session of sessions) {
  await session.enter({ database: task.database, settings: new Map(), parameters: new Map() });
}

async function insert(files: DirectTask['files']): Promise<void> {
  let next = 0;
  const keepInserting = async (session: EngineSession) => {
    for (let given = files[next++]; given !== undefined; given = files[next++]) {
      const all = { ...insertSettings, insert_deduplication_token: given.token };
      const clause = Object.entries(all).map(([name, value]) => `${name} = ${quote(String(value))}`);
      await session.run(
        `INSERT INTO stored_events (${columns.events.join(', ')}) FROM INFILE ${quote(given.file)}
          COMPRESSION 'none' SETTINGS ${clause.join(', ')} FORMAT JSONCompactEachRow`,
        'Null',
      );
    }
  };
  await Promise.all(sessions.map(keepInserting));
}

await insert(task.files.slice(0, task.warmUp));
const startedAt = performance.now();
const cpuBefore = process.cpuUsage();
await insert(task.files.slice(task.warmUp));
const { user, system } = process.cpuUsage(cpuBefore);
const seconds = (performance.now() - startedAt) / 1000;
const { bytes } = await first.run("SELECT count() FROM stored_events WHERE app_id != ''", 'TabSeparated');
const result: DirectResult = { seconds, cpu: user + system, rows: Number(Buffer.from(bytes).toString()) };
process.stdout.write(`${JSON.stringify(result)}\n`);
for (const session of sessions) session.close();
process.exit(0);
