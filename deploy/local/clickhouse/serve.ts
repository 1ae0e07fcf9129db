// Owns the life of the process: start, signals, stop. Errors of the start are one line that names the
// variable at fault, and exit code 1.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { readConfigOrExit } from '../../../src/config.js';
import { createLog } from '../../../src/log.js';
import { Engine } from './engine.js';
import { engineArguments } from './engine-arguments.js';
import { stopMsMax } from './limits.js';
import { createClickHouseServer } from './server.js';

export async function serve(): Promise<void> {
  const config = readConfigOrExit();
  const log = createLog('clickhouse', config.logLevel);
  const path = join(config.dataDir, 'clickhouse');
  const directory = join(config.dataDir, 'clickhouse-exchange');
  let engine: Engine;
  try {
    mkdirSync(path, { recursive: true });
    engine = new Engine(path, directory, engineArguments(config.dataDir));
  } catch (error) {
    const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
    return refuse(`DATA_DIR ${config.dataDir} cannot be opened: ${reason}`);
  }
  const server = createClickHouseServer(engine, log);
  server.once('error', (error) =>
    refuse(`CLICKHOUSE_PORT ${config.clickhousePort} cannot be used: ${error.message}`),
  );
  server.listen(config.clickhousePort, '127.0.0.1', () => {
    log.info({ port: config.clickhousePort }, 'listening');
  });

  let stopping = false;
  const stop = async (signal: string) => {
    if (stopping) return;
    stopping = true;
    log.info({ signal }, 'stopping');
    server.close();
    server.closeIdleConnections();
    const clean = await engine.close(stopMsMax);
    log.info({ clean }, 'stopped');
    // Without the engine's tear-down at exit: it would wait for statements that have not ended.
    if (!clean) process.kill(process.pid, 'SIGKILL');
    process.exit(0);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal));
  process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
}

function refuse(reason: string): never {
  process.stderr.write(`sluice: ${reason}\n`);
  process.exit(1);
}
