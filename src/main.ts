// The API process.

import { startApp } from './app.js';
import { readConfigOrExit } from './config.js';
import { PortTaken } from './http/protocol/server.js';
import { createLog } from './log.js';
import { stopRequested } from './stop.js';

const config = readConfigOrExit();
const log = createLog('api', config.logLevel);
const app = await startApp(config, log).catch((error: unknown) => {
  if (!(error instanceof PortTaken)) throw error;
  process.stderr.write(`sluice: ${error.message}\n`);
  process.exit(1);
});
log.info({ port: config.port, adminPort: config.adminPort }, 'listening');

await stopRequested();
log.info('stopping');
await app.close();
log.info('stopped');
process.exit(0);
