// The functions that analysts have in addition to ClickHouse's own. deploy/clickhouse/users.sql creates the same ones on any other server;
// a test compares the two. No view and no statement of the service uses them, so a database can be restored or moved without them.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** The statement of each, by its name. */
export const functions: Readonly<Record<string, string>> = {
  number: 'CREATE FUNCTION number AS (value) -> toFloat64OrNull(value)',
};

/** Writes them to the place where the engine of that data directory reads them when it starts. */
export function writeFunctions(path: string): void {
  const folder = join(path, 'user_defined');
  mkdirSync(folder, { recursive: true });
  for (const [name, statement] of Object.entries(functions))
    writeFileSync(join(folder, `function_${name}.sql`), `${statement}\n`);
}
