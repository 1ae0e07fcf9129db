// `npm run admin -- …`: runs one command and prints its result as JSON.

import { AdministrationError } from '../accounts/accounts.js';
import { StateNotLoaded } from '../accounts/registry.js';
import { connectClickHouse } from '../clickhouse/client.js';
import { readConfigOrExit } from '../config.js';
import { createLog, describeError } from '../log.js';
import { connect, ready } from '../redis/client.js';
import { runCommand } from './commands.js';

const config = readConfigOrExit();
const log = createLog('admin', config.logLevel === 'info' ? 'error' : config.logLevel);
const redis = connect(config, log);
const clickhouse = connectClickHouse({ url: config.clickhouseUrl, database: config.clickhouseDatabase });
try {
  await ready(redis, 5_000).catch(() => {
    throw new AdministrationError('REDIS_URL: Redis did not answer within 5 s');
  });
  const result = await runCommand({ redis, clickhouse, config, log }, process.argv.slice(2));
  process.stdout.write(`${JSON.stringify(result, null, process.stdout.isTTY ? 2 : undefined)}\n`);
} catch (error) {
  const known = error instanceof AdministrationError || error instanceof StateNotLoaded;
  process.stderr.write(`${known ? error.message : `sluice: ${describeError(error).message}`}\n`);
  process.exitCode = 1;
} finally {
  redis.disconnect();
  await clickhouse.close();
}
