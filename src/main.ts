// The API process.

import { startApp } from './app.js';
import { readConfigOrExit } from './config.js';
import { createLog } from './log.js';
import { exitAfter, stopRequested } from './stop.js';

const config = readConfigOrExit();
const log = createLog('api', config.logLevel);
const app = await startApp(config, log).catch(exitAfter);
log.info({ port: config.port, adminPort: config.adminPort }, 'listening');

await stopRequested();
log.info('stopping');
await app.close();
log.info('stopped');
process.exit(0);
