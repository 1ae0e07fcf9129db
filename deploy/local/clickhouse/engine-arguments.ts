// Owns the engine's server-level settings.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Writes the engine's configuration file into `directory` and returns the arguments that name it. */
export function engineArguments(directory: string): string[] {
  const file = join(directory, 'clickhouse.xml');
  writeFileSync(file, '<clickhouse></clickhouse>\n');
  return [`--config-file=${file}`];
}
