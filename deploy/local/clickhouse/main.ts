// The process of an embedded ClickHouse: it reads its ports and DATA_DIR, and runs ClickHouse's own HTTP and native servers on 127.0.0.1.
// Each of several servers (CLICKHOUSE_SERVERS) is a process; its argument is its number, from 1. Owns the life of the process: start,
// signals, stop. If the start fails, it prints one line that names the variable and exits with code 1.

import { lstatSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { getPriority, setPriority } from 'node:os';
import { join } from 'node:path';
import { type Config, clickhousePasswordFile, readConfigOrExit } from '../../../src/config.js';
import { createLog } from '../../../src/log.js';
import { probePort } from '../ports.js';
import { makeFilesPrivate } from '../private-data.js';
import { findOrMakeSecret, newSecret } from '../secrets.js';
import { type Control, createControl } from './control.js';
import { loadEngine, missingEngine } from './engine.js';
import { writeFunctions } from './functions.js';
import { killMsMax, lastReplyMs, niceEveryMs, niceness, stopMsMax } from './limits.js';
import { mendDefinitions } from './mend-definitions.js';
import { clusterOf, firstName, placeOf } from './places.js';
import { keptFree, untilRoom } from './room.js';
import { serverConfig } from './server-config.js';
import { untilLockFree } from './status-lock.js';
import { usersConfig } from './users.js';

process.env.TZ = 'UTC'; // the engine's time zone
makeFilesPrivate();
const config = readConfigOrExit();
const place = placeOf(config, Number(process.argv[2] ?? 1));
const log = createLog(place.name, config.logLevel);
// If the parent is gone, nothing else would stop this process.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));

const missing = missingEngine();
if (missing !== undefined) refuse(missing);
const engine = loadEngine();
let isStopping = false;
/** Undefined until the server listens; from then on there may be statements to wait for. */
let control: Control | undefined;
// The listeners are set once, since a signal that arrives while a listener is replaced would be lost.
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, stop);

const launcherPassword = newSecret();
const configFile = await prepare(config, launcherPassword);
control = createControl(place.httpPort, launcherPassword);
beNice();
setInterval(beNice, niceEveryMs).unref();
engine.run(configFile).then(
  (reason) =>
    leave(
      `DATA_DIR: ${config.dataDir} cannot be used: ${reason.split('\n')[0] || 'the engine has ended, see above'}`,
    ),
  (error: unknown) => leave(`the engine does not run: ${(error as Error).message}`),
);
const version = await control.untilAnswered();
log.info({ port: place.httpPort, tcpPort: place.tcpPort, version }, 'listening');

/** Lets running statements finish, kills those that take too long, and ends the process. A kill at any time is safe. */
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

/** Waits for the data directory, checks the ports, and writes the files that the engine reads when it starts. */
async function prepare(config: Config, launcherPassword: string): Promise<string> {
  const { dataDir } = config;
  const { name, httpPort, tcpPort } = place;
  const path = join(dataDir, name);
  try {
    mkdirSync(path, { recursive: true });
    const holder = await untilLockFree(join(path, 'status'));
    if (holder !== undefined) return refuse(`DATA_DIR: ${dataDir} is in use by process ${holder}`);
    await untilRoom(path, (room) => log.warn(room, 'waiting for room on the disk'));
    await checkPort('CLICKHOUSE_PORT', httpPort);
    await checkPort('CLICKHOUSE_TCP_PORT', tcpPort);
    for (const mended of await mendDefinitions(path, config.clickhouseDatabase))
      log.warn(mended, 'a damaged definition');
    const [configFile, usersFile] = [join(dataDir, `${name}.xml`), join(dataDir, `${name}-users.xml`)];
    shareFolders(dataDir, name);
    writeFunctions(path);
    const passwords = {
      sluice: findOrMakeSecret(clickhousePasswordFile(dataDir, 'sluice')),
      reader: findOrMakeSecret(clickhousePasswordFile(dataDir, 'reader')),
      launcher: launcherPassword,
    };
    const backupDir = join(dataDir, 'backups');
    const cluster = clusterOf(config);
    const free = keptFree(path);
    writeFileSync(
      configFile,
      serverConfig({ path, usersFile, backupDir, free, httpPort, tcpPort, cluster }),
      {
        mode: 0o600,
      },
    );
    writeFileSync(usersFile, usersConfig(config.clickhouseDatabase, passwords, config.clickhouseServers), {
      mode: 0o600,
    });
    return configFile;
  } catch (error) {
    const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
    return refuse(`DATA_DIR: ${dataDir} cannot be used: ${reason}`);
  }
}

/**
 * Lowers the priority of the threads that have a higher one. New threads of the engine inherit it. With the capability CAP_SYS_NICE the
 * engine raises a thread to 0 when it has merged parts with it, so this is repeated. What fails here must not end the engine.
 */
function beNice(): void {
  try {
    for (const thread of readdirSync('/proc/self/task').map(Number))
      if (getPriority(thread) < niceness.ofStatements) setPriority(thread, niceness.ofStatements);
  } catch (error) {
    // Mostly a thread that has ended since; the next call tries the others again.
    log.debug({ error }, 'the priority of threads could not be lowered');
  }
}

/** An administrator's additions to the first server's configuration apply to all servers, since ClickHouse merges these folders. */
function shareFolders(dataDir: string, name: string): void {
  if (name === firstName) return;
  for (const [own, shared] of [
    [`${name}.d`, `${firstName}.d`],
    [`${name}-users.d`, `${firstName}-users.d`],
  ] as const) {
    if (lstatSync(join(dataDir, own), { throwIfNoEntry: false }) === undefined)
      symlinkSync(shared, join(dataDir, own));
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
