// Process entry of the embedded ClickHouse: ports and DATA_DIR in, ClickHouse's own HTTP and native servers on 127.0.0.1
// out. Owns the life of the process: start, signals, stop. What is wrong at the start is one line that names the
// variable, and exit code 1.

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Config, clickhousePasswordFile, readConfigOrExit } from '../../../src/config.js';
import { createLog } from '../../../src/log.js';
import { probePort } from '../ports.js';
import { type Control, createControl } from './control.js';
import { loadEngine, missingEngine } from './engine.js';
import { killMsMax, lastReplyMs, stopMsMax } from './limits.js';
import { findOrMakePassword, newPassword } from './passwords.js';
import { serverConfig } from './server-config.js';
import { untilFree } from './status-lock.js';
import { usersConfig } from './users.js';

process.env.TZ = 'UTC'; // the engine's time zone
const config = readConfigOrExit();
const log = createLog('clickhouse', config.logLevel);
// When the parent is gone, however it went, nobody would stop this process.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));

const missing = missingEngine();
if (missing !== undefined) refuse(missing);
const engine = loadEngine();
let isStopping = false;
/** From then on there may be statements to wait for. */
let control: Control | undefined;
const stopOnSignals = () => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.removeAllListeners(signal).on(signal, stop);
};
stopOnSignals();

const launcherPassword = newPassword();
const configFile = await prepare(config, launcherPassword);
control = createControl(config.clickhousePort, launcherPassword);
engine.run(configFile).then(
  (reason) =>
    leave(
      `DATA_DIR: ${config.dataDir} cannot be used: ${reason.split('\n')[0] || 'the engine has ended, see above'}`,
    ),
  (error: unknown) => leave(`the engine does not run: ${(error as Error).message}`),
);
const version = await control.untilAnswered();
// The engine has set handlers of its own for some signals.
stopOnSignals();
log.info({ port: config.clickhousePort, tcpPort: config.clickhouseTcpPort, version }, 'listening');

/** Lets running statements end, kills those that take too long, and ends the process. A kill at any time is safe. */
async function stop(signal: NodeJS.Signals): Promise<void> {
  if (isStopping) return;
  isStopping = true;
  log.info({ signal }, 'stopping');
  const clean =
    control === undefined || (await control.idleWithin(stopMsMax)) || (await control.killWithin(killMsMax));
  await new Promise((settle) => setTimeout(settle, lastReplyMs));
  log.info({ clean }, 'stopped');
  engine.exit(0);
}

/** Waits for the data directory, looks at the ports, and writes what the engine reads at its start. */
async function prepare(config: Config, launcherPassword: string): Promise<string> {
  const { dataDir, clickhousePort: httpPort, clickhouseTcpPort: tcpPort } = config;
  const path = join(dataDir, 'clickhouse');
  try {
    mkdirSync(path, { recursive: true });
    const holder = await untilFree(join(path, 'status'));
    if (holder !== undefined) return refuse(`DATA_DIR: ${dataDir} is in use by process ${holder}`);
    await checkPort('CLICKHOUSE_PORT', httpPort);
    await checkPort('CLICKHOUSE_TCP_PORT', tcpPort);
    // Earlier versions passed data and results through files.
    rmSync(join(dataDir, 'clickhouse-exchange'), { recursive: true, force: true });
    const [configFile, usersFile] = [join(dataDir, 'clickhouse.xml'), join(dataDir, 'clickhouse-users.xml')];
    const passwords = {
      sluice: findOrMakePassword(clickhousePasswordFile(dataDir, 'sluice')),
      reader: findOrMakePassword(clickhousePasswordFile(dataDir, 'reader')),
      launcher: launcherPassword,
    };
    const backupDir = join(dataDir, 'backups');
    writeFileSync(configFile, serverConfig({ path, usersFile, backupDir, httpPort, tcpPort }));
    writeFileSync(usersFile, usersConfig(config.clickhouseDatabase, passwords), { mode: 0o600 });
    return configFile;
  } catch (error) {
    const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
    return refuse(`DATA_DIR: ${dataDir} cannot be used: ${reason}`);
  }
}

async function checkPort(variable: string, port: number): Promise<void> {
  const answer = await probePort('127.0.0.1', port);
  if (answer === 'free') return;
  refuse(`${variable}: port ${port} ${answer === 'taken' ? 'is in use' : `cannot be used (${answer})`}`);
}

function leave(reason: string): void {
  process.stderr.write(`sluice: ${reason}\n`);
  engine.exit(1);
}

function refuse(reason: string): never {
  process.stderr.write(`sluice: ${reason}\n`);
  process.exit(1);
}
