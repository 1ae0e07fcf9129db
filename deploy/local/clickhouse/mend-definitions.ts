// Recreates damaged definitions of the service's tables before the engine starts. The engine keeps each definition in a small file. A full
// disk may have left one empty; the engine then no longer starts, although all rows are there. The definitions follow from the migrations
// (limits that change are rows), so a separate engine in a temporary folder writes the files. The tables' ids are the names of their
// folders. Other damaged definitions stay as they are, and the engine reports them.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { planTable, scratchDatabase, takenBy } from '../../../src/clickhouse/tables.js';
import { clickhousePasswordFile } from '../../../src/config.js';
import { mendMsMax } from './limits.js';

/** What was done about a damaged definition; without a table, about a whole database. */
export type Mended = {
  readonly database: string;
  readonly table?: string;
  readonly how: 'made anew' | 'dropped';
};

/**
 * Tables of one round, run, export or move, those that a restore reads from a backup only to look at them, and those that a migration or
 * its next run creates again. They can be dropped without loss: a table whose definition was never written has no rows that are not
 * elsewhere.
 */
const temporary = /^(local_|next_|later_|_tmp_|shard_\d+_is_moved_by$|end_mark$|registry_of_backup$)/;

const noId = "ATTACH TABLE _ UUID '00000000-0000-0000-0000-000000000000'";
/** Tables that no migration creates: of several servers, and the plan of a restore. */
const ofNoMigration = {
  server_number: `${noId}\n(\n    \`number\` UInt16,\n    \`deployment\` String\n)\nENGINE = MergeTree\nORDER BY number\nSETTINGS fsync_after_insert = 1, index_granularity = 8192\n`,
  [planTable]: `${noId}\n(\n    \`plan\` String\n)\nENGINE = MergeTree\nORDER BY tuple()\nSETTINGS fsync_after_insert = 1, fsync_part_directory = 1, index_granularity = 8192\n`,
};

/**
 * Mends what is damaged in an engine's folder, while no engine has it open. `database`: the service's database; backups are restored beside
 * it. Rejects if a file cannot be written, for example on a disk that is still full.
 */
export async function mendDefinitions(path: string, database: string): Promise<Mended[]> {
  const metadata = join(path, 'metadata');
  const mended: Mended[] = [];
  if (!existsSync(metadata)) return mended;
  for (const name of [database, `${database}_restore`]) {
    // It has no tables before the engine runs, and is created again when it is needed.
    const scratch = join(metadata, `${scratchDatabase(name)}.sql`);
    if (existsSync(scratch) && isDamaged(scratch)) {
      rmSync(scratch);
      mended.push({ database: scratchDatabase(name), how: 'dropped' });
    }
    const folder = join(metadata, name);
    const own = `${folder}.sql`;
    if (!existsSync(folder)) continue;
    if (!existsSync(own) || isDamaged(own)) {
      writeWhole(own, `ATTACH DATABASE _ UUID '${basename(readlinkSync(folder))}'\nENGINE = Atomic\n`);
      mended.push({ database: name, how: 'made anew' });
    }
    const damaged = readdirSync(folder)
      .filter((file) => file.endsWith('.sql') && isDamaged(join(folder, file)))
      .map((file) => file.slice(0, -'.sql'.length));
    const lasting = damaged.filter((table) => !temporary.test(table));
    const made = lasting.length === 0 ? new Map<string, string>() : await makeDefinitions(name);
    for (const [table, definition] of Object.entries(ofNoMigration)) made.set(table, definition);
    for (const table of damaged) {
      const file = join(folder, `${table}.sql`);
      const definition = made.get(table.split(takenBy)[0] ?? '');
      if (temporary.test(table)) {
        rmSync(file);
        rmSync(linkOf(path, name, table), { force: true });
        mended.push({ database: name, table, how: 'dropped' });
      } else if (definition !== undefined) {
        writeWhole(file, withId(definition, idOf(path, name, table)));
        mended.push({ database: name, table, how: 'made anew' });
      }
    }
  }
  return mended;
}

/** Whether a file is no definition, which is one statement and a line end. A crash may also leave a file of nothing but zeros. */
function isDamaged(file: string): boolean {
  const text = readFileSync(file, 'utf8');
  return !/^ATTACH [^\0]*\n$/.test(text);
}

function linkOf(path: string, database: string, table: string): string {
  return join(path, 'data', database, table);
}

/** The id of a table with rows, which is the name of its folder. A view has none, and gets a new id. */
function idOf(path: string, database: string, table: string): string | undefined {
  try {
    return basename(readlinkSync(linkOf(path, database, table)));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function withId(definition: string, id: string | undefined): string {
  const isView = definition.startsWith('ATTACH VIEW ');
  if (id === undefined && !isView) throw new Error('the folder of a table without a definition is not known');
  return definition.replace(/ UUID '[0-9a-f-]+'/, ` UUID '${id ?? randomUUID()}'`);
}

function writeWhole(file: string, text: string): void {
  const next = `${file}.mended`;
  const opened = openSync(next, 'w', 0o600);
  try {
    writeSync(opened, text);
    fsyncSync(opened);
  } finally {
    closeSync(opened);
  }
  if (readFileSync(next, 'utf8') !== text)
    throw new Error('a definition cannot be written: is the disk full?');
  renameSync(next, file);
}

/** The files, by name, that the engine writes for the tables and views of all migrations. */
async function makeDefinitions(database: string): Promise<Map<string, string>> {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-definitions-'));
  const [port, tcpPort] = [await freePort(), await freePort()];
  const environment = {
    ...process.env,
    DATA_DIR: dir,
    CLICKHOUSE_DATABASE: database,
    CLICKHOUSE_PORT: String(port),
    CLICKHOUSE_TCP_PORT: String(tcpPort),
    CLICKHOUSE_SERVERS: '1',
    CLICKHOUSE_URL: undefined,
    CLICKHOUSE_CLUSTER: undefined,
    CLICKHOUSE_TABLES: undefined,
  };
  const engine = run('./main.js', environment, ['1']);
  try {
    await untilAnswered(port, engine);
    const password = readFileSync(clickhousePasswordFile(dir, 'sluice'), 'utf8').trim();
    const url = `http://sluice:${password}@127.0.0.1:${port}`;
    const migration = run('../../../src/migrate.js', { ...environment, CLICKHOUSE_URL: url });
    if ((await ended(migration)) !== 0) throw new Error('the definitions could not be made anew');
    const folder = join(dir, 'clickhouse', 'metadata', database);
    const files = readdirSync(folder).filter((file) => file.endsWith('.sql'));
    return new Map(
      files.map((file) => [file.slice(0, -'.sql'.length), readFileSync(join(folder, file), 'utf8')]),
    );
  } finally {
    engine.kill('SIGKILL');
    await ended(engine);
    rmSync(dir, { recursive: true, force: true });
  }
}

function run(program: string, env: NodeJS.ProcessEnv, args: readonly string[] = []) {
  const path = fileURLToPath(new URL(program, import.meta.url));
  // The child's channel closes with this process, and the engine ends with its channel.
  return spawn(process.execPath, [path, ...args], { env, stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
}

async function ended(child: ReturnType<typeof run>): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  return child.exitCode;
}

async function untilAnswered(port: number, engine: ReturnType<typeof run>): Promise<void> {
  const giveUpAt = performance.now() + mendMsMax;
  for (;;) {
    const answer = await fetch(`http://127.0.0.1:${port}/ping`, { signal: AbortSignal.timeout(2_000) }).catch(
      () => undefined,
    );
    if (answer?.ok === true) return;
    if (engine.exitCode !== null || performance.now() > giveUpAt)
      throw new Error('the definitions could not be made anew: another engine does not start');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('there is no free port');
  return address.port;
}
