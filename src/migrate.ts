// `npm run migrate`: migrates ClickHouse to the schema of this version, then ends.

import { connectionOf } from './clickhouse/client.js';
import { migrate } from './clickhouse/migrate.js';
import { readConfigOrExit } from './config.js';
import { createLog } from './log.js';

const config = readConfigOrExit();
const log = createLog('migrate', config.logLevel);
try {
  const applied = await migrate(connectionOf(config));
  log.info({ applied }, 'schema is up to date');
} catch (error) {
  process.stderr.write(
    `sluice: CLICKHOUSE_URL: migrations failed: ${error instanceof Error ? error.message : 'unknown'}\n`,
  );
  process.exitCode = 1;
}
