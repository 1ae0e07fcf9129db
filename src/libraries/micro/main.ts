// The program `sluice-micro`.

import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readConfigOrExit } from '../../config.js';
import { front } from '../../http/protocol/front.js';
import { PortTaken } from '../../http/protocol/server.js';
import { createLog } from '../../log.js';
import { microPaths, startMicro } from './micro.js';

const config = readConfigOrExit();
front(config.headerBytesMax);
try {
  const folder = dirname(fileURLToPath(import.meta.url));
  await startMicro({ ...config, folder, log: createLog('micro', config.logLevel) });
  const { events, rejected, reset } = microPaths;
  process.stdout.write(
    `sluice-micro: ${config.publicBaseUrl} (GET ${events}, GET ${rejected}, POST ${reset})\n`,
  );
} catch (error) {
  if (!(error instanceof PortTaken)) throw error;
  process.stderr.write(`sluice-micro: ${error.message}\n`);
  process.exitCode = 1;
}
