// A ClickHouse data folder with the schema of this build and nothing else. It is made once and then copied, since migrating an empty
// database takes ClickHouse 0.4 s of CPU. A deployment that starts from a copy still migrates, and finds nothing to do.

import { createHash } from 'node:crypto';
import { cpSync, existsSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { migrate, readMigrations } from '../../src/clickhouse/migrate.js';
import { type ClickHouseHandle, startClickHouse, startClickHouseServers } from './clickhouse.js';

const dist = fileURLToPath(new URL('../..', import.meta.url));
/** The folders with the tables. The others belong to one running server. */
const folders = ['metadata', 'store', 'data'];

/** Starts an engine that has the schema already. */
export async function startMigratedClickHouse(): Promise<ClickHouseHandle> {
  const folder = await migratedDatabase();
  return startClickHouse({ prepare: (to) => copyDatabase(folder, to) });
}

/** Starts several such servers that are one cluster. */
export async function startMigratedServers(count: number): Promise<ClickHouseHandle[]> {
  const folder = await migratedDatabase();
  return startClickHouseServers(count, (to) => copyDatabase(folder, to));
}

/** The folder to copy; made if this build has none yet for its migrations and engine. */
async function migratedDatabase(): Promise<string> {
  const folder = join(dist, `.migrated-database-${fingerprint()}`);
  if (!existsSync(folder)) await make(folder);
  return folder;
}

function fingerprint(): string {
  const engine = `@chdb/lib-${process.platform}-${process.arch}-gnu/package.json`;
  const hash = createHash('sha256').update(readFileSync(createRequire(import.meta.url).resolve(engine)));
  for (const { name, checksum } of readMigrations()) hash.update(`${name} ${checksum}\n`);
  return hash.digest('hex').slice(0, 16);
}

async function make(folder: string): Promise<void> {
  const clickhouse = await startClickHouse();
  await migrate({ url: clickhouse.url, database: 'sluice' });
  // Each migration leaves a part of a dozen files, which the server keeps for minutes after it has merged them.
  await clickhouse.query('OPTIMIZE TABLE sluice.migrations FINAL');
  const merged = await clickhouse.query(
    "SELECT path FROM system.parts WHERE NOT active AND database = 'sluice'",
  );
  await clickhouse.stop();
  for (const part of merged.split('\n').filter((path) => path !== ''))
    rmSync(part, { recursive: true, force: true });
  // Made under another name and then renamed, since another process may be making the same folder.
  const own = `${folder}-${process.pid}`;
  copyDatabase(join(clickhouse.dir, 'clickhouse'), own);
  await clickhouse.remove();
  try {
    renameSync(own, folder);
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    rmSync(own, { recursive: true });
  }
}

/** Copies the tables of a stopped server. */
function copyDatabase(from: string, to: string): void {
  for (const name of folders) {
    cpSync(join(from, name), join(to, name), { recursive: true, verbatimSymlinks: true });
  }
}
