// `npm run migrate`: migrates ClickHouse to the schema of this version, then ends.

import { checkClickHouse, faultInWords } from './admin/own-stores.js';
import { connectClickHouse, serversIn } from './clickhouse/client.js';
import { migrateServers } from './clickhouse/migrate.js';
import { readConfigBesideStart, readConfigOrExit } from './config.js';
import { createLog } from './log.js';

const config = readConfigOrExit(readConfigBesideStart);
const log = createLog('migrate', config.logLevel);
try {
  for (const url of config.clickhouseUrls) {
    // Its database may not exist yet.
    const server = connectClickHouse({ url, database: 'default' });
    await checkClickHouse(server, config).finally(() => server.close());
  }
  const applied = await migrateServers(serversIn(config));
  log.info({ applied }, 'schema is up to date');
} catch (error) {
  const why = faultInWords(error, config) ?? (error instanceof Error ? error.message : String(error));
  process.stderr.write(`sluice: the migration failed: ${why}\n`);
  process.exitCode = 1;
}
