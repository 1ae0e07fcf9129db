// `npm run migrate`: migrates ClickHouse to the schema of this version, then ends.

import { serversIn } from './clickhouse/client.js';
import { migrateServers } from './clickhouse/migrate.js';
import { readConfigBesideStart, readConfigOrExit } from './config.js';
import { createLog } from './log.js';

const config = readConfigOrExit(readConfigBesideStart);
const log = createLog('migrate', config.logLevel);
try {
  const applied = await migrateServers(serversIn(config));
  log.info({ applied }, 'schema is up to date');
} catch (error) {
  process.stderr.write(
    `sluice: CLICKHOUSE_URL: migrations failed: ${error instanceof Error ? error.message : 'unknown'}\n`,
  );
  process.exitCode = 1;
}
