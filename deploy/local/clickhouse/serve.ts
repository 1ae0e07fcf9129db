// Owns the life of the process: start, signals, stop. What is wrong at the start is one line that names the
// variable, and exit code 1.

import { mkdirSync } from 'node:fs';
import type { Server } from 'node:http';
import { join } from 'node:path';
import { readConfigOrExit } from '../../../src/config.js';
import { createLog } from '../../../src/log.js';
import { Engine } from './engine.js';
import { baseSettings, writeEngineArguments } from './engine-arguments.js';
import { killMsMax, stopMsMax } from './limits.js';
import { createClickHouseServer } from './server.js';
import { untilFree } from './status-lock.js';

/** Starts everything; settles when requests are answered. The process ends by a signal. */
export async function serve(): Promise<void> {
  const config = readConfigOrExit();
  const log = createLog('clickhouse', config.logLevel);
  // When the parent is gone, however it went, nobody would stop this process.
  process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));

  // An error of ours. The engine's own end at exit would wait for running statements; a kill is safe.
  process.on('uncaughtException', (error) => {
    log.fatal({ error }, 'stopped by an error');
    process.kill(process.pid, 'SIGKILL');
  });

  const engine = await openEngine(config.dataDir);
  const server = createClickHouseServer(engine, log);
  server.once('error', (error) =>
    refuse(`CLICKHOUSE_PORT: port ${config.clickhousePort} cannot be used: ${error.message}`),
  );
  server.listen(config.clickhousePort, '127.0.0.1', () =>
    log.info({ port: config.clickhousePort, version: engine.version }, 'listening'),
  );

  let isStopping = false;
  const stop = async (signal: NodeJS.Signals) => {
    if (isStopping) return;
    isStopping = true;
    log.info({ signal }, 'stopping');
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    const isClean = await engine.close(stopMsMax, killMsMax);
    await sendReplies(server, closed);
    log.info({ clean: isClean }, 'stopped');
    // Statements that would not end: the engine's own end at exit would wait for them. A kill is safe.
    if (!isClean) process.kill(process.pid, 'SIGKILL');
    process.exit(0);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal));
}

async function openEngine(dataDir: string): Promise<Engine> {
  const path = join(dataDir, 'clickhouse');
  try {
    mkdirSync(dataDir, { recursive: true });
    const holder = await untilFree(join(path, 'status'));
    if (holder !== undefined) return refuse(`DATA_DIR: ${dataDir} is in use by process ${holder}`);
    return await Engine.open({
      path,
      exchangePath: join(dataDir, 'clickhouse-exchange'),
      connectionArgs: writeEngineArguments(join(dataDir, 'clickhouse.xml')),
      baseSettings: baseSettings(),
    });
  } catch (error) {
    const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
    return refuse(`DATA_DIR: ${dataDir} cannot be used: ${reason}`);
  }
}

/** Settles when the replies under way are sent; the rest is cut off after `killMsMax`. */
async function sendReplies(server: Server, closed: Promise<void>): Promise<void> {
  const sweep = setInterval(() => server.closeIdleConnections(), 20);
  const cutOff = setTimeout(() => server.closeAllConnections(), killMsMax);
  await closed;
  clearInterval(sweep);
  clearTimeout(cutOff);
}

function refuse(reason: string): never {
  process.stderr.write(`sluice: ${reason}\n`);
  process.exit(1);
}
